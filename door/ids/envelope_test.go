package ids

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/argschema"
)

const minimal = `"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a"}`

// envelopeCorpus is what envelopes may look like, and where they are wrong.
var envelopeCorpus = []struct {
	name, text string
	path       string // of the first problem; "-" for a good one
}{
	{"the smallest", `{` + minimal + `}`, "-"},
	{"one with everything", `{"command_id":"c","tenant_id":"t","actor_id":"a","effective_actor_id":"b","intent":{"entity":"e","action":"a","target":["x","y"]},"args":{"a":[1,null]},"command_kind":"k","correlation_id":"r","trace":{"message_id":"m","phone_number_id":"p","n":1,"b":true},"sent_at":"2026-01-02T03:04:04Z","received_at":"2026-01-02T03:04:05.678+01:00","idempotency_key":"i","confirmation_token":"c","step_up":"s"}`, "-"},
	{"one by an effective actor only", `{"tenant_id":"t","effective_actor_id":"a","intent":{"entity":"e","action":"a"}}`, "-"},
	{"a null target", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":null}}`, "-"},
	{"a target of none", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":[]}}`, "-"},
	{"an id of the greatest length", `{` + minimal + `,"command_id":"` + strings.Repeat("x", 256) + `"}`, "-"},
	{"an array", `[]`, ""},
	{"a string", `"x"`, ""},
	{"nothing in it", `{}`, "tenant_id"},
	{"no intent", `{"tenant_id":"t","actor_id":"a"}`, "intent"},
	{"no actor", `{"tenant_id":"t","intent":{"entity":"e","action":"a"}}`, "actor_id"},
	{"an empty tenant", `{"tenant_id":"","actor_id":"a","intent":{"entity":"e","action":"a"}}`, "tenant_id"},
	{"a null tenant", `{"tenant_id":null,"actor_id":"a","intent":{"entity":"e","action":"a"}}`, "tenant_id"},
	{"a number as an actor", `{"tenant_id":"t","actor_id":7,"intent":{"entity":"e","action":"a"}}`, "actor_id"},
	{"a NUL in an id", `{` + minimal + `,"command_id":"a\u0000"}`, "command_id"},
	{"an id that is too long", `{` + minimal + `,"command_id":"` + strings.Repeat("x", 257) + `"}`, "command_id"},
	{"a key that is too long", `{` + minimal + `,"idempotency_key":"` + strings.Repeat("x", 513) + `"}`, "idempotency_key"},
	{"an intent without an action", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e"}}`, "intent.action"},
	{"an intent with more", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","objects":[]}}`, "intent.objects"},
	{"an intent in text", `{"tenant_id":"t","actor_id":"a","intent":"cancel"}`, "intent"},
	{"an entity that is too long", `{"tenant_id":"t","actor_id":"a","intent":{"action":"a","entity":"` + strings.Repeat("x", 128) + `"}}`, "intent.entity"},
	{"a number as a target", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":1}}`, "intent.target"},
	{"a number in a target", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":["x",1]}}`, "intent.target[1]"},
	{"an empty text in a target", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":[""]}}`, "intent.target[0]"},
	{"too many targets", `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e","action":"a","target":["x"` + strings.Repeat(`,"x"`, 1000) + `]}}`, "intent.target"},
	{"args in an array", `{` + minimal + `,"args":[]}`, "args"},
	{"null args", `{` + minimal + `,"args":null}`, "args"},
	{"a trace in a trace", `{` + minimal + `,"trace":{"a":{}}}`, "trace.a"},
	{"a null in a trace", `{` + minimal + `,"trace":{"a":null}}`, "trace.a"},
	{"an empty text in a trace", `{` + minimal + `,"trace":{"a":""}}`, "trace.a"},
	{"a trace of nine", `{` + minimal + `,"trace":{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9}}`, "trace"},
	{"a time in text that is none", `{` + minimal + `,"received_at":"yesterday"}`, "received_at"},
	{"a day that is none", `{` + minimal + `,"received_at":"2026-02-30T00:00:00Z"}`, "received_at"},
	{"a time of one digit", `{` + minimal + `,"received_at":"2026-02-03T4:00:00Z"}`, "received_at"},
	{"a time in a number", `{` + minimal + `,"received_at":1767323045}`, "received_at"},
	{"an unknown member", `{` + minimal + `,"timestamp":1}`, "timestamp"},
	{"a known one in upper case", `{` + minimal + `,"ARGS":{}}`, "ARGS"},
}

func TestParseCommand(t *testing.T) {
	schema, err := argschema.Compile(EnvelopeSchema())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range envelopeCorpus {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCommand([]byte(c.text))
			first := err
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				first = joined.Unwrap()[0]
			}
			if e, ok := errors.AsType[*Error](first); c.path == "-" && err != nil || c.path != "-" && (!ok || e.Path != c.path || e.Reason != ReasonEnvelope) {
				t.Errorf("the error is %v, want one at %q", err, c.path)
			}
			doc, err := argschema.Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if faults := schema.Check(doc); (len(faults) == 0) != (c.path == "-") {
				t.Errorf("the schema says %v", faults)
			}
		})
	}
	t.Run("everything that is wrong is said at once", func(t *testing.T) {
		_, err := ParseCommand([]byte(`{"tenant_id":1,"x":2,"intent":{"y":3}}`))
		for _, path := range []string{"tenant_id", "x", "intent.y", "intent.entity", "intent.action"} {
			if !strings.Contains(err.Error(), path+": ") {
				t.Errorf("%s is not in %v", path, err)
			}
		}
	})
	t.Run("an error shows no values", func(t *testing.T) {
		_, err := ParseCommand([]byte(`{"tenant_id":{"secret":1},"confirmation_token":["secret"],"received_at":"secret","args":"secret"}`))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	})
	t.Run("an envelope that is too long is refused before it is read", func(t *testing.T) {
		if _, err := ParseCommand(bytes.Repeat([]byte("["), MaxEnvelope+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%v", err)
		}
	})
}

func TestCommandRoundTrip(t *testing.T) {
	text := envelopeCorpus[1].text
	c, err := ParseCommand([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("every member is read", func(t *testing.T) {
		want := `[{c t a b {e a {3 [x y]}} [] k r map[b:true message_id:m n:1 phone_number_id:p] 2026-01-02 03:04:04 +0000 UTC 2026-01-02 03:04:05.678 +0100 i c s} {"a":[1,null]}]`
		c := c
		c.ReceivedAt = c.ReceivedAt.In(time.FixedZone("", 3600))
		if got := strings.ReplaceAll(fmt.Sprint(plainCommand(c)), " +0100 +0100", " +0100"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
	t.Run("what is written is read as the same", func(t *testing.T) {
		for _, e := range envelopeCorpus {
			if e.path != "-" {
				continue
			}
			var first, second Command
			if err := json.Unmarshal([]byte(e.text), &first); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(first)
			if err == nil {
				err = json.Unmarshal(again, &second)
			}
			if a, b := fmt.Sprint(plainCommand(first)), fmt.Sprint(plainCommand(second)); err != nil || a != b {
				t.Errorf("%s: %v\n%s\n%s", e.name, err, a, b)
			}
		}
	})
	t.Run("a log has neither args nor secrets", func(t *testing.T) {
		var b bytes.Buffer
		c := c
		c.Args, c.ConfirmationToken, c.StepUp, c.IdempotencyKey = json.RawMessage(`"hidden"`), "hidden", "hidden", "hidden"
		slog.New(slog.NewTextHandler(&b, nil)).Info("command", "command", c)
		if !strings.Contains(b.String(), "e.a") || strings.Contains(b.String(), "hidden") {
			t.Error(b.String())
		}
	})
}

// plainCommand is a command without its methods, as fmt shows it.
func plainCommand(c Command) any {
	type plain Command
	p := plain(c)
	p.Args = nil
	return []any{p, string(c.Args)}
}

func FuzzParseCommand(f *testing.F) {
	for _, c := range envelopeCorpus {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseCommand(text)
		if err != nil {
			return
		}
		d, err := Derive(c)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("the error is %T", err)
			}
			return
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		second, err := ParseCommand(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if e, err := Derive(second); err != nil || e.Key != d.Key {
			t.Fatalf("%s has another key than %s: %v", again, text, err)
		}
	})
}
