package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// FuzzForgery: whoever has one genuine delivery of a sender, and not the secret, gets
// nothing else accepted: neither another body nor, where what identifies an event is
// signed, another identity.
func FuzzForgery(f *testing.F) {
	for i, v := range vectors {
		d := v.delivery(f)
		for name := range d.Header {
			f.Add(uint8(i), name, d.Header.Get(name), d.Body)
			f.Add(uint8(i), name, d.Header.Get(name)+", "+d.Header.Get(name), append([]byte(" "), d.Body...))
		}
		f.Add(uint8(i), "X-Other", "", bytes.Replace(d.Body, []byte(":"), []byte(`:"x":`), 1))
	}
	f.Fuzz(func(t *testing.T, which uint8, name, value string, body []byte) {
		v := vectors[int(which)%len(vectors)]
		genuine, ver := v.delivery(t), v.verifier(t)
		s := ver.source
		if !s.perEvent() && !s.covers(template{{place: &place{kind: "body", text: "body"}}}) {
			return // somebody who has a delivery can send another body, as the page says
		}
		want, err := ver.Verify(genuine)
		if err != nil {
			t.Fatal(err)
		}
		forged := &Delivery{Header: genuine.Header.Clone(), Body: body}
		forged.Header.Set(name, value)
		got, err := ver.Verify(forged)
		if err != nil {
			return
		}
		if !s.perEvent() && !bytes.Equal(body, genuine.Body) {
			t.Fatalf("%s takes %q with %s: %q", v.file, body, name, value)
		}
		if s.perEvent() {
			for _, e := range got {
				if !slices.ContainsFunc(want, func(w Event) bool { return bytes.Equal(signedOf(t, s, &e), signedOf(t, s, &w)) }) {
					t.Fatalf("%s takes an item of %q", v.file, body)
				}
			}
		}
		for i := range s.rules {
			if r := &s.rules[i]; !slices.ContainsFunc(slices.Concat(r.id, r.scope), func(part template) bool { return !s.covers(part) }) {
				continue
			}
			return // somebody who has a delivery can have it handled under another identity, as the page says
		}
		for _, e := range got {
			if !slices.ContainsFunc(want, func(w Event) bool { return w.Key == e.Key && w.Scope == e.Scope }) {
				t.Fatalf("%s takes %q with %s: %q as %s in %q", v.file, body, name, value, e.Key, e.Scope)
			}
		}
	})
}

// signedOf is what is signed of an event that has a signature of its own.
func signedOf(t *testing.T, s *Source, e *Event) []byte {
	t.Helper()
	text, err := e.view.bytes(s.signed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzIdentity: an event is the same one however its JSON is spelled, and another one with
// a member more.
func FuzzIdentity(f *testing.F) {
	for i, v := range vectors {
		f.Add(uint8(i), v.delivery(f).Body)
	}
	f.Add(uint8(4), []byte(`{"notificationItems":[{"NotificationRequestItem":{}},1,{"NotificationRequestItem":{"pspReference":"p","eventCode":"e"}}]}`))
	f.Add(uint8(9), []byte(`{"id":"evt_1","type":"t","pending_webhooks":1,"data":{"object":{"payment_intent":"pi_1"}}}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		v := vectors[int(which)%len(vectors)]
		if canon.Check(body, canon.Exact) != nil || bytes.TrimSpace(body)[0] != '{' {
			return // what isn't strict JSON is compared by its bytes
		}
		ver := v.verifier(t)
		find := func(body []byte) ([]Event, error) {
			return ver.events(&Delivery{Header: v.delivery(t).Header, Body: body})
		}
		one, err := find(body)
		text, merr := json.MarshalIndent(jsonscan.Tree(body), " ", "\t")
		if merr != nil {
			t.Fatal(merr)
		}
		other, again := find(text)
		if (err == nil) != (again == nil) || len(one) != len(other) {
			t.Fatalf("%q has %d events, %v; as %q it has %d, %v", body, len(one), err, text, len(other), again)
		}
		for i := range one {
			a, b := &one[i], &other[i]
			if a.mistake != "" && b.mistake != "" {
				continue // parked, and known by its bytes
			}
			if a.Key != b.Key || a.Scope != b.Scope || a.Type != b.Type || a.print != b.print {
				t.Fatalf("%q is %s in %q of type %q, as %q %s in %q of type %q", body, a.Key, a.Scope, a.Type, text, b.Key, b.Scope, b.Type)
			}
		}
		if ver.source.rules[0].each != nil || err != nil {
			return
		}
		tree := jsonscan.Tree(body).(map[string]any)
		tree["semel_fuzz"] = len(tree)
		more, merr := json.Marshal(tree)
		if merr != nil {
			t.Fatal(merr)
		}
		if longer, err := find(more); err != nil || len(longer) != 1 || longer[0].print == one[0].print {
			t.Fatalf("%q is taken for %q: %v", more, body, err)
		}
	})
}
