package activitypub

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzActivity has other readers read what is accepted: whoever they take for the actor,
// by exact names, without regard to case, or by the keywords of JSON-LD, must be the one
// whose signature is asked for.
func FuzzActivity(f *testing.F) {
	for _, seed := range []string{
		`{"id":"https://a.example/1","type":"Like","actor":"https://a.example/u","object":"x"}`,
		`{"id":"https://a.example/1","type":"Like","actor":{"id":"https://b.example/u","ID":"https://a.example/u"}}`,
		`{"id":"https://a.example/1","ID":"https://b.example/1","type":"Like"}`,
		`{"id":"https://a.example/1","type":"Like","Actor":"https://b.example/u"}`,
		`{"id":"https://a.example/1","type":"Like","actor":{"@id":"https://b.example/u","id":"https://a.example/u"}}`,
		`{"id":"https://a.example/1","type":"Like","\u0061ctor":"https://a.example/u","to":[{"id":"https://c.example/u"}]}`,
		`{"id":"https://a.example/1","type":"Like","actor":"https://a.example/u","as:actor":"https://b.example/u"}`,
		`{"id":"urn:uuid:1","type":"Delete","actor":{"id":"https://a.example/u"},"object":"https://a.example/u"}`,
		`{"id":"https://a.example/1","type":["Like"],"actor":[null,{"id":"https://a.example/u"}],"object":[],"cc":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parse(body)
		if err != nil {
			return
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(body, &exact); err != nil {
			t.Fatalf("%s is taken: %v", body, err)
		}
		var loose struct {
			ID          string
			Type, Actor json.RawMessage
		}
		if err := json.Unmarshal(body, &loose); err != nil {
			t.Fatalf("%s is taken: %v", body, err)
		}
		var id, kind, looseKind string
		_ = json.Unmarshal(exact["id"], &id) // a.ID isn't empty
		_ = json.Unmarshal(one(exact["type"]), &kind)
		_ = json.Unmarshal(one(loose.Type), &looseKind)
		if a.ID != id || a.ID != loose.ID || a.Type != kind || a.Type != looseKind {
			t.Fatalf("%s is %q of type %q here, %q of type %q and %q of type %q elsewhere", body, a.ID, a.Type, id, kind, loose.ID, looseKind)
		}
		for how, actor := range map[string]string{"exact names": actorOf(t, one(exact["actor"]), false), "names in any case": actorOf(t, one(loose.Actor), true)} {
			if a.Actor != actor {
				t.Fatalf("%s is by %q here, and by %q for a reader of %s", body, a.Actor, actor, how)
			}
		}
		for name := range exact {
			if name == "@id" || name == "@type" || name == "as:actor" || name == "https://www.w3.org/ns/activitystreams#actor" {
				t.Fatalf("%s has another id, type or actor in JSON-LD", body)
			}
		}
	})
}

// one is a value, or what a list has but null.
func one(raw json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return raw
	}
	list = slices.DeleteFunc(list, func(item json.RawMessage) bool { return item == nil || string(item) == "null" })
	if len(list) == 1 {
		return list[0]
	}
	return nil
}

// actorOf is who another reader takes for the actor.
func actorOf(t *testing.T, raw json.RawMessage, loose bool) (actor string) {
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &actor) == nil {
		return actor
	}
	if loose {
		var object struct{ ID string }
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatalf("%s is taken as an actor: %v", raw, err)
		}
		return object.ID
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object["@id"] != nil {
		t.Fatalf("%s is taken as an actor: %v", raw, err)
	}
	_ = json.Unmarshal(object["id"], &actor)
	return actor
}
