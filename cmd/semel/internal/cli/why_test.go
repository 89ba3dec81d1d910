package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/store"
)

// TestWhy asks whether somebody was charged twice: once by a retry under the same key,
// which was not, and once by a client that made another key, which was.
func TestWhy(t *testing.T) {
	dir, engine, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	pay := func(tenant, key, payload string) {
		t.Helper()
		_, err := engine.Do(t.Context(), semel.Call{
			Tenant: tenant, Principal: "alice", Operation: "pay", Key: key,
			Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)), Attributes: store.Attributes{"order": key},
		}, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte(`{"paid":true}`)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pay("acme", "order-1", "12 EUR")
	pay("acme", "order-1", "12 EUR")
	scoped := semel.Call{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "cart-1", Scope: "session=s1"}
	if _, err := engine.Do(t.Context(), scoped, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil }); err != nil {
		t.Fatal(err)
	}
	pay("acme", "retry-of-order-1", "12 EUR")
	pay("acme", "order-2", "13 EUR")
	pay("other", "order-3", "12 EUR")
	_, err := engine.Do(t.Context(), semel.Call{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "order-9"}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, semel.Rejected("no_order", errors.New("There is no order R-9."))
	})
	if !errors.Is(err, &semel.Error{Code: semel.CodeRejected}) {
		t.Fatal(err)
	}
	leave()
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append(args, "--store", "pebble:"+dir)...)
		if code != want {
			t.Fatalf("%q: exit %d, %s%s", args, code, out, errs)
		}
		return out + errs
	}
	out := run(ExitOK, "why", "order-1")
	for _, want := range []string{
		"pay, key order-1, of alice in the tenant acme: executed once; whether an earlier record of it was purged is not known here\n", "attempt 1 began", "attempt 1 ended: completed", "until then its duplicates are recognised",
		`{"paid":true}`, "The same payload came under other keys", "key retry-of-order-1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "order-2") || strings.Contains(out, "order-3") {
		t.Errorf("it names calls that have nothing to do with it:\n%s", out)
	}
	t.Run("a scope has its own name", func(t *testing.T) {
		clause.Proves(t, "CORE-ID.3")
		names := regexp.MustCompile(`(?s)(?i)"?tenant"?.*acme.*"?principal"?.*alice.*"?scope"?.*session=s1|TENANT +PRINCIPAL +SCOPE .*acme +alice +session=s1 `)
		for _, command := range [][]string{
			{"records", "get", "cart-1"}, {"records", "list", "--wide", "cart-1"}, {"records", "list", "--wide", "principal:alice", "scope:session=s1"},
			{"records", "get", "--json", "cart-1"}, {"records", "list", "--json", "cart-1"}, {"why", "--json", "cart-1"},
		} {
			if out := run(ExitOK, command...); !names.MatchString(out) || strings.Contains(out, store.ScopeMark) {
				t.Errorf("%q doesn't say tenant, principal and scope by their names:\n%s", command, out)
			}
		}
		if out := run(ExitOK, "why", "cart-1"); !strings.Contains(out, "of alice in the tenant acme") || !strings.Contains(out, "  session=s1\n") || strings.Contains(out, store.ScopeMark) {
			t.Errorf("it doesn't say the scope:\n%s", out)
		}
	})
	if strings.Contains(out, "  scope ") {
		t.Errorf("a call without a scope has one:\n%s", out)
	}
	if out := run(ExitOK, "why", "order-2"); !strings.Contains(out, "No other call of this operation and tenant that is still kept has its fingerprint.") {
		t.Error(out)
	}
	t.Run("a refusal has the handler's words", func(t *testing.T) {
		clause.Proves(t, "IDS-IX.6")
		if out := run(ExitOK, "why", "order-9"); !strings.Contains(out, "no_order: There is no order R-9.") {
			t.Error(out)
		}
	})
	var stories []story
	if err := json.Unmarshal([]byte(run(ExitOK, "why", "--json", "order-1")), &stories); err != nil || len(stories) != 1 || len(stories[0].SamePayload) != 1 || stories[0].Record.Key != "order-1" {
		t.Fatalf("%+v, %v", stories, err)
	}
	if out := run(ExitOK, "why", logName(t, stories[0].Record.ID)); !strings.Contains(out, "key order-1") {
		t.Error(out)
	}
	run(ExitNotFound, "why", "order-4")
	run(ExitNotFound, "why", "pay/000000000000")
	run(ExitUsage, "why")
	list := func(words ...string) int {
		return strings.Count(run(ExitOK, append([]string{"records", "list", "--json"}, words...)...), "\n")
	}
	if n := list("fingerprint:" + stories[0].Record.PayloadHash.String()); n != 3 {
		t.Errorf("by their payload %d calls are listed", n)
	}
	if n := list("attribute:order=order-2"); n != 1 {
		t.Errorf("by an attribute %d calls are listed", n)
	}
}

// TestCallsByAttribute: support has the id of an order and not the key.
func TestCallsByAttribute(t *testing.T) {
	dir, engine, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	notes := map[string]string{"9911": "a-note", "8000": "a-note"}
	for _, order := range []string{"9911", "9912", "8000"} {
		_, err := engine.Do(t.Context(), semel.Call{Operation: "pay", Key: "key-of-" + order, Attributes: store.Attributes{"order": order, "note of " + order: notes[order]}}, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Attributes: store.Attributes{"receipt": "r" + order}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	leave()
	for args, want := range map[string][]string{
		"why order=9911":                   {"9911"},
		"why 9911":                         {"9911"},
		"records get r9912":                {"9912"},
		"records list 9911":                {"9911"},
		"why a-note":                       {"9911", "8000"},
		"why receipt=r8*":                  {"8000"},
		"why order=99*":                    {"9911", "9912"},
		"records list attribute:order=99*": {"9911", "9912"},
		"records list attribute:order=99* created<1h": {"9911", "9912"},
		"records list attribute:order=99* created>1h": nil,
		"records list attribute:receipt=r9912":        {"9912"},
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errs := semelWith(t, "", append(strings.Fields(args), "--store", "pebble:"+dir)...)
			if code != ExitOK {
				t.Fatalf("exit %d, %s", code, errs)
			}
			for _, order := range []string{"9911", "9912", "8000"} {
				if strings.Contains(out, "key-of-"+order) != slices.Contains(want, order) {
					t.Errorf("%s is wrong in\n%s", order, out)
				}
			}
		})
	}
}

// A command that changes something doesn't guess, and says how to name the call instead of denying it.
func TestChangesTakeNoGuess(t *testing.T) {
	dir, engine, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	ans, err := engine.Begin(t.Context(), semel.Call{Operation: "pay", Key: "k", Attributes: store.Attributes{"order": "9911"}})
	if err := errors.Join(err, ans.Attempt.Hold(t.Context(), "no answer")); err != nil {
		t.Fatal(err)
	}
	leave()
	release := func(name string) (int, string) {
		code, _, errs := semelWith(t, "", "records", "release", name, "--reason", "harmless", "--yes", "--force", "--store", "pebble:"+dir)
		return code, errs
	}
	if code, errs := release("9911"); code != ExitUsage || !strings.Contains(errs, "write order=9911") || strings.Contains(errs, "no call has") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, errs := release("order=9911"); code != ExitOK {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// What duplicates got is known after a restart, and without a service.
func TestWhyCountsWhatServicesCounted(t *testing.T) {
	file, dir, engine, st, end := evidentStore(t)
	counts := tally.New(st)
	id := semel.ID{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "order-1"}
	ans, err := engine.Begin(t.Context(), command("order-1", "cmd-1", "p"))
	if err := errors.Join(err, ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("x")})); err != nil {
		t.Fatal(err)
	}
	counts.Count(id, semel.Replay)
	counts.Count(id, semel.Replay)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	counts.Run(stopped)
	end()
	code, out, errs := semelWith(t, "", "why", "order-1", "--config", file)
	if code != ExitOK || !strings.Contains(out, "1 execute, 2 replay") {
		t.Errorf("in %s: exit %d, %s%s", dir, code, out, errs)
	}
	code, out, errs = semelWith(t, "", "records", "list", "--config", file)
	if code != ExitOK || strings.Contains(out, "semel.counts") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}

// What was delivered at once was not tried in vain.
func TestTriesOfMessages(t *testing.T) {
	rec := &semel.Record{Outbox: []semel.Message{
		{Name: "a", Destination: "billing", CreatedAt: 1, State: store.MessageDelivered},
		{Name: "b", Destination: "billing", CreatedAt: 2, State: store.MessageDelivered, Tries: 1},
		{Name: "c", Destination: "billing", CreatedAt: 3, State: store.MessageParked, Tries: 20, Failure: &store.Failure{Code: "refused", Message: "gone"}},
		{Name: "d", Destination: "webhook.github", CreatedAt: 4, State: store.MessageParked, Failure: &store.Failure{Code: "conflict", Message: "two contents"}},
	}}
	var got []string
	for _, m := range timeline(rec) {
		if strings.HasPrefix(m.what, "message") {
			got = append(got, m.what)
		}
	}
	want := []string{
		"message a to billing: delivered", "message b to billing: delivered after one failed try",
		"message c to billing: parked after 20 failed tries: refused: gone", "message d to webhook.github: parked: conflict: two contents",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestAnyNameWillDo: every command takes any name of a call, and says so if several have it.
func TestAnyNameWillDo(t *testing.T) {
	dir, engine, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	id := semel.ID{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "one"}
	for _, key := range []string{"one", "two"} {
		ans, err := engine.Begin(t.Context(), semel.Call{Tenant: id.Tenant, Principal: id.Principal, Operation: "pay", Key: key, Attributes: store.Attributes{
			"order": "99-" + key, store.AttributeRequestID: "req-" + key, store.AttributeEventID: "evt-" + key,
			store.AttributeCommandID: "cmd-" + key, store.AttributeCorrelationID: "both",
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Hold(t.Context(), "the provider did not answer"); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	run := func(args ...string) (int, string) {
		code, out, errs := semelWith(t, "", append(args, "--store", "pebble:"+dir)...)
		return code, out + errs
	}
	for _, name := range []string{"one", "order=99-one", "order=99-o*", "req-one", "evt-one", "cmd-one", id.Encode(), id.Encode() + ".1", logName(t, id.Encode())} {
		for _, command := range [][]string{{"why"}, {"records", "get"}, {"records", "settle", "--outcome", "aborted", "--reason", "r", "--dry-run"}, {"records", "release", "--reason", "r", "--dry-run"}, {"records", "list"}} {
			code, text := run(append(command, name)...)
			if code != ExitOK || !strings.Contains(text, "one") || strings.Contains(text, "two") {
				t.Errorf("%q %s: exit %d\n%s", command, name, code, text)
			}
		}
		if code, text := run("records", "purge", "--reason", "r", "--dry-run", name); code != ExitConflict {
			t.Errorf("purge %s: exit %d\n%s", name, code, text)
		}
	}
	if code, text := run("why", "both"); code != ExitOK || !strings.Contains(text, "key one") || !strings.Contains(text, "key two") {
		t.Errorf("exit %d\n%s", code, text)
	}
	if code, text := run("records", "get", "both"); code != ExitUsage || !strings.Contains(text, "several calls have the name both") || !strings.Contains(text, id.Encode()) {
		t.Errorf("exit %d\n%s", code, text)
	}
	if code, text := run("records", "get", "three"); code != ExitNotFound || !strings.Contains(text, "no call has the name three") {
		t.Errorf("exit %d\n%s", code, text)
	}
	if code, text := run("why", "one"); code != ExitOK || !strings.Contains(text, "What to do next:\n  find out what happened, and record it:\n    semel records settle --store pebble:"+dir+" "+id.Encode()) {
		t.Errorf("exit %d\n%s", code, text)
	}
	for words, want := range map[string]int{
		"-key:one": 1, "-held": 0, "key:one OR key:two": 2, "key:o*": 1, "state:held operation:p*": 2, "after:1h": 2, "-(key:one OR key:two)": 0,
	} {
		code, text := run(append([]string{"records", "list", "--json"}, strings.Fields(words)...)...)
		if code != ExitOK || strings.Count(text, `"operation":"pay"`) != want {
			t.Errorf("%s: exit %d\n%s", words, code, text)
		}
	}
}

// TestWhyLooksForAllNamesAtOnce: a key doesn't hide the calls of an order, a service is asked as a
// store is, and a command that changes a call doesn't go by the value of an attribute.
func TestWhyLooksForAllNamesAtOnce(t *testing.T) {
	dir, engine, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	for key, attributes := range map[string]store.Attributes{"pay-1": {"order": "9911"}, "pay-1-again": {"order": "9911"}, "9911": nil} {
		_, err := engine.Do(t.Context(), semel.Call{Operation: "pay", Key: key, Attributes: attributes}, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	leave()
	_, url, stop := servingUntil(t, "store: {url: 'pebble:"+dir+"'}\n")
	ask := func(from ...string) {
		t.Helper()
		code, out, errs := semelWith(t, "", append([]string{"why", "9911"}, from...)...)
		if code != ExitOK || !strings.HasPrefix(out, "9911: 3 calls, executed 3 times: ") || errs != "" && !strings.HasPrefix(errs, "semel: asking") {
			t.Errorf("%q: exit %d, %s%s", from, code, out, errs)
		}
		_, out, _ = semelWith(t, "", append([]string{"why", "9911", "--json"}, from...)...)
		var stories []story
		if err := json.Unmarshal([]byte(out), &stories); err != nil || len(stories) != 3 {
			t.Fatalf("%q: %s", from, out)
		}
		for i := range stories {
			if want := map[bool]string{true: "[key]", false: "[value:order]"}[stories[i].Record.Key == "9911"]; fmt.Sprint(stories[i].FoundBy) != want {
				t.Errorf("%q: %s was found by %v", from, stories[i].Record.Key, stories[i].FoundBy)
			}
		}
		if code, out, _ := semelWith(t, "", append([]string{"records", "list", "--json", "9911"}, from...)...); code != ExitOK || strings.Count(out, "\n") != 3 {
			t.Errorf("%q: %s", from, out)
		}
		if code, _, errs := semelWith(t, "", append([]string{"records", "purge", "--reason", "r", "--dry-run", "9911"}, from...)...); code != ExitOK {
			t.Errorf("%q: the key alone is sure: exit %d, %s", from, code, errs)
		}
		if code, _, errs := semelWith(t, "", append([]string{"records", "purge", "--reason", "r", "--dry-run", "order=9911"}, from...)...); code != ExitUsage || !strings.Contains(errs, "several calls") {
			t.Errorf("%q: exit %d, %s", from, code, errs)
		}
		if code, _, errs := semelWith(t, "", append([]string{"why", "no-such"}, from...)...); code != ExitNotFound || !strings.Contains(errs, "no call has the name no-such (3 records searched)") {
			t.Errorf("%q: exit %d, %s", from, code, errs)
		}
	}
	ask("--url", url)
	stop()
	ask("--store", "pebble:"+dir)
}
