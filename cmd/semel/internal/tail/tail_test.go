package tail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

// TestMain shows times in UTC, whatever the machine's zone is.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

var errForbidden = &semel.Error{Code: semel.CodeForbidden, Message: "not any more"}

var start = time.Date(2026, 11, 25, 20, 15, 30, 123e6, time.UTC)

// told is an event as a service sends it, so many seconds after start.
func told(seq int, kind, operation, key string, members map[string]any) client.Event {
	data := map[string]any{"at": start.Add(time.Duration(seq) * time.Second)}
	if operation != "" {
		data["record"] = store.ID{Tenant: "acme", Principal: "shop", Operation: operation, Key: key}.Encode()
	}
	maps.Copy(data, members)
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return client.Event{ID: fmt.Sprint(seq), Type: kind, Data: text}
}

// day is one event of each kind.
func day(t *testing.T) []Event {
	t.Helper()
	var all []Event
	for _, ev := range []client.Event{
		told(1, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "execute", "attempt": 1, "status": "processing"}),
		told(2, "ended", "payments.charge@2", "order-1", map[string]any{"disposition": "completed", "took_ms": 1250, "by": "holder", "attempt": 1}),
		told(3, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "replay", "status": "completed", "attempt": 1, "waited_ms": 30}),
		told(4, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "conflict", "status": "completed", "attempt": 1}),
		told(5, "ended", "payments.charge@2", "order-2", map[string]any{"held": true, "held_reason": "the upstream did not answer", "took_ms": 5000, "by": "holder", "attempt": 2}),
		told(6, "decided", "payments.charge@2", "order-2", map[string]any{"decision": "held", "status": "processing", "attempt": 2}),
		told(7, "ended", "mail.send", "a key with \x1b[31mcolor", map[string]any{"disposition": "rejected", "took_ms": 3, "by": "operator", "reason": "no such address"}),
		told(8, "decided", "mail.send", "m-1", map[string]any{"decision": "throttled", "limit": "duplicates", "status": "completed", "attempt": 1}),
		told(9, "lease_lost", "mail.send", "m-2", map[string]any{"attempt": 3, "reason": "the lease was lost"}),
		told(10, "purged", "", "", map[string]any{"count": 40}),
		told(11, "gap", "", "", nil),
	} {
		e, err := Parse(ev)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestFilters(t *testing.T) {
	all := day(t)
	seqs := func(f Filter) string {
		var found []string
		for i := range all {
			if f.Matches(&all[i]) && all[i].Kind != "gap" {
				found = append(found, all[i].Seq)
			}
		}
		return strings.Join(found, " ")
	}
	for text, want := range map[string]string{
		"":                                     "1 2 3 4 5 6 7 8 9 10",
		"order-1":                              "1 2 3 4",
		"order-*":                              "1 2 3 4 5 6",
		`"order-1"`:                            "1 2 3 4",
		"operation:mail.*":                     "7 8 9",
		"-operation:mail.*":                    "1 2 3 4 5 6",
		"operation:mail.send OR key:order-2":   "5 6 7 8 9",
		"(key:m-1 OR key:m-2) -key:m-1":        "9",
		"held":                                 "5 6",
		"state:rejected":                       "7",
		"state:processing":                     "1 5 6",
		"decision:replay":                      "3",
		"decision:replay decision:conflict":    "3 4",
		"-decision:execute order-1":            "2 3 4",
		"tenant:acme principal:shop key:m-*":   "8 9",
		"tenant:other":                         "",
		"call:" + all[4].ID.Encode():           "5 6",
		all[4].ID.Encode() + " decision:held":  "6",
		`key:"a key with \x1b[31mcolor"`:       "7",
		"operation:payments.charge@2 -order-1": "5 6",
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := seqs(f); got != want {
			t.Errorf("%s selects %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"decision:replya":              "did you mean replay?",
		"decision:zzz":                 "there is no decision",
		"(decision:replay OR held)":    "can't stand in parentheses",
		"decision:replay OR held":      "exclude each other",
		"attribute:order=1":            "events have no attributes",
		"-(fingerprint:1:ab held)":     "events have no attributes",
		"created<1h":                   "events have no attributes",
		"oporation:x":                  "did you mean operation?",
		"state:":                       "has an empty value",
		`key:"x`:                       "doesn't end",
		"order-1 after:2026-01-01":     "semel records list",
		"key:a key:b":                  "given twice",
		"-decision:nothing-like-it":    "there is no decision",
		"decision:":                    "there is no decision",
		"operation:x (held":            "isn't closed",
		"call:nothing":                 "isn't the name of a call",
		"created>7d":                   "events have no",
		"attribute_prefix:order=1":     "events have no",
		"-attribute:order=1 operation": "events have no",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestStrangeEventsAreRefused(t *testing.T) {
	for _, text := range []string{`[`, `{"record":"x"}`, `{"record":7}`} {
		if e, err := Parse(client.Event{Type: "decided", Data: []byte(text)}); err == nil {
			t.Errorf("%s is %+v", text, e)
		}
	}
	if e, err := Parse(client.Event{Type: "later", Data: []byte(`{"decision":"unheard of","status":"new"}`)}); err != nil || !strings.Contains(e.Line(), "later") {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestLines(t *testing.T) {
	const want = `20:15:31.123  execute      payments.charge@2     order-1
20:15:32.123  completed    payments.charge@2     order-1                   after 1.25s
20:15:33.123  replay       payments.charge@2     order-1                   waited 30ms
20:15:34.123  conflict     payments.charge@2     order-1
20:15:35.123  held         payments.charge@2     order-2                   attempt 2 · after 5s · the upstream did not answer
20:15:36.123  held         payments.charge@2     order-2                   attempt 2
20:15:37.123  rejected     mail.send             a key with �[31mcolor     after 3ms · by operator · no such address
20:15:38.123  throttled    mail.send             m-1                       duplicates
20:15:39.123  lease lost   mail.send             m-2                       attempt 3 · the lease was lost
20:15:40.123  purged                                                       40 records
20:15:41.123  gap: events are missing: this reader was too slow or away for too long, or the node was restarted
`
	var got strings.Builder
	for _, e := range day(t) {
		fmt.Fprintln(&got, e.Line())
	}
	if got.String() != want {
		t.Errorf("got\n%s", got.String())
	}
}

// A stream that breaks off is opened again after the last event; a refusal ends it, and so
// does the caller.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, seen []string
		watch := func(_ context.Context, last string) iter.Seq2[client.Event, error] {
			asked = append(asked, last)
			return func(yield func(client.Event, error) bool) {
				switch len(asked) {
				case 1:
					_ = yield(told(6, "gap", "", "", nil), nil) && yield(told(7, "decided", "pay", "a", map[string]any{"decision": "execute"}), nil) &&
						yield(told(8, "decided", "pay", "a", map[string]any{"decision": "replay"}), nil) &&
						yield(client.Event{}, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "away"})
				case 2:
					_ = yield(told(9, "gap", "", "", nil), nil) && yield(client.Event{}, errForbidden)
				}
			}
		}
		var last error
		for e, err := range Follow(t.Context(), watch, "0", func(error) { seen = append(seen, "lost") }) {
			if last = err; err == nil {
				seen = append(seen, e.Kind+e.Seq)
			}
		}
		if got := strings.Join(seen, " "); got != "decided7 decided8 lost gap9" {
			t.Errorf("seen %s", got)
		}
		if !slices.Equal(asked, []string{"0", "8"}) || !errors.Is(last, errForbidden) {
			t.Errorf("asked after %q, ended by %v", asked, last)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endless := func(context.Context, string) iter.Seq2[client.Event, error] {
		return func(yield func(client.Event, error) bool) {
			for n := 1; yield(told(n, "decided", "pay", "a", nil), nil); n++ {
			}
		}
	}
	n := 0
	for range Follow(ctx, endless, "", nil) {
		if n++; n == 300 {
			cancel()
		}
	}
	if n != 300 {
		t.Errorf("%d events after the end", n-300)
	}
}
