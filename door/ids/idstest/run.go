package idstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/door/ids"
)

// Run runs the tests of XIII against an implementation, and the vectors. Each run sends new
// commands.
func Run(t *testing.T, tg Target) {
	tg.fill()
	if tg.Evidence == nil && !tg.WithoutEvidence {
		t.Fatal("idstest: Target.Evidence is missing, and WithoutEvidence is not set")
	}
	run := time.Now().UnixNano()
	count := 0
	target := func() string {
		count++
		return fmt.Sprintf("t-%d-%d", run, count)
	}
	t.Run("1 duplicates have one effect", func(t *testing.T) { tg.duplicates(t, target()) })
	t.Run("2 concurrent duplicates converge to one execution", func(t *testing.T) { tg.concurrent(t, target()) })
	t.Run("3 a duplicate after success replays the outcome", func(t *testing.T) { tg.replays(t, target()) })
	t.Run("4 a duplicate in progress is told so", func(t *testing.T) { tg.inProgress(t, target()) })
	t.Run("5 a collision is rejected, with evidence", func(t *testing.T) { tg.collision(t, target()) })
	t.Run("6 confirmation can't be bypassed or used twice", func(t *testing.T) { tg.confirmation(t, target(), target()) })
	t.Run("vectors", func(t *testing.T) { tg.vectors(t) })
}

// delivered makes one of many deliveries: with its own ids.
func delivered(envelope map[string]any, i int) map[string]any {
	return with(envelope, map[string]any{
		"command_id": fmt.Sprintf("c-%d-%d", time.Now().UnixNano(), i), "correlation_id": fmt.Sprintf("corr-%d", i),
		"received_at": time.Now().UTC().Format(time.RFC3339Nano),
		"trace":       map[string]any{"message_id": fmt.Sprintf("wamid.%d.%d", time.Now().UnixNano(), i), "phone_number_id": "100"},
	})
}

// settled delivers until the command is no longer in progress.
func (tg *Target) settled(t *testing.T, envelope map[string]any, i int) Answer {
	t.Helper()
	return until(30*time.Second, func() (Answer, bool) {
		a := tg.deliver(t, delivered(envelope, i))
		return a, a.Status != "processing" && a.HTTP != http.StatusTooManyRequests
	})
}

// until asks until it gets the last answer, or for a time. The implementation may be in another
// process, which doesn't say when it has moved on.
func until[T any](limit time.Duration, ask func() (answer T, last bool)) T {
	for end := time.Now().Add(limit); ; <-time.After(20 * time.Millisecond) {
		if answer, last := ask(); last || time.Now().After(end) {
			return answer
		}
	}
}

// together sends envelopes at the same time, and returns the answers.
func (tg *Target) together(t *testing.T, n int, envelope func(i int) map[string]any) []Answer {
	t.Helper()
	answers := make([]Answer, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			e := envelope(i)
			<-start
			var err error
			if answers[i], err = tg.post(e); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	return answers
}

func (tg *Target) effects(t *testing.T, target string, want int) {
	t.Helper()
	if n := tg.Provider.Effects(target); n != want {
		t.Fatalf("%d effects on %s, want %d", n, target, want)
	}
}

func executed(t *testing.T, a Answer) {
	t.Helper()
	if a.Status != "executed" {
		t.Fatalf("status %q (HTTP %d, reason %q), want executed", a.Status, a.HTTP, a.Reason)
	}
}

func (tg *Target) duplicates(t *testing.T, target string) {
	e := tg.envelope("charge", target, map[string]any{"amount": 4200, "currency": "EUR"})
	for i := range 5 {
		executed(t, tg.settled(t, e, i))
	}
	tg.effects(t, target, 1)
	// Another target makes another command.
	other := tg.envelope("charge", target+"-b", map[string]any{"amount": 4200, "currency": "EUR"})
	executed(t, tg.settled(t, other, 0))
	tg.effects(t, target+"-b", 1)
	tg.effects(t, target, 1)
}

func (tg *Target) concurrent(t *testing.T, target string) {
	e := tg.envelope("charge", target, map[string]any{"amount": 1})
	const n = 50
	answers := tg.together(t, n, func(i int) map[string]any { return delivered(e, i) })
	tg.effects(t, target, 1)
	final := tg.settled(t, e, n)
	executed(t, final)
	for i, a := range answers {
		switch {
		case a.HTTP == http.StatusTooManyRequests: // the specification demands limits on duplicates elsewhere
		case a.Status != "executed" && a.Status != "processing":
			t.Errorf("delivery %d got status %q, HTTP %d", i, a.Status, a.HTTP)
		case a.CommandID != final.CommandID:
			t.Errorf("delivery %d was told of command %s, another of %s", i, a.CommandID, final.CommandID)
		}
	}
	tg.effects(t, target, 1)
}

func (tg *Target) replays(t *testing.T, target string) {
	e := tg.envelope("charge", target, map[string]any{"amount": 7})
	first := tg.settled(t, e, 0)
	executed(t, first)
	again := tg.settled(t, e, 1)
	if again.Decision != "duplicate_replayed" || first.Decision != "first_seen" {
		t.Errorf("the decisions are %q and %q, want first_seen and duplicate_replayed", first.Decision, again.Decision)
	}
	first.Decision, again.Decision = "", ""
	if again.CommandID != first.CommandID || again.IdempotencyKey != first.IdempotencyKey || again.OutcomeRef != first.OutcomeRef ||
		again.Summary != first.Summary || string(again.Outcome) != string(first.Outcome) || again.Status != first.Status {
		t.Errorf("the replay differs:\n%+v\n%+v", first, again)
	}
	if first.OutcomeRef == "" || first.IdempotencyKey == "" || first.CommandID == "" || len(first.Outcome) == 0 {
		t.Errorf("the outcome lacks a reference, a key, an id or itself: %+v", first)
	}
	tg.effects(t, target, 1)
	if tg.WithoutEvidence {
		return
	}
	all := tg.evidence(t, first.CommandID, "duplicate_replayed")
	for _, decision := range []string{"first_seen", "duplicate_replayed"} {
		ev := find(all, decision)
		switch {
		case ev == nil:
			t.Errorf("there is no evidence of %s: %+v", decision, all)
		case ev.CommandID != first.CommandID || ev.IdempotencyKey != first.IdempotencyKey:
			t.Errorf("the evidence of %s is of command %s, key %s; want %s, %s", decision, ev.CommandID, ev.IdempotencyKey, first.CommandID, first.IdempotencyKey)
		case ev.Executed != (decision == "first_seen"):
			t.Errorf("the evidence of %s says executed: %v", decision, ev.Executed)
		case decision == "duplicate_replayed" && ev.OutcomeRef != first.OutcomeRef:
			t.Errorf("the evidence of the replay is of outcome %s, the answer of %s", ev.OutcomeRef, first.OutcomeRef)
		}
	}
}

func (tg *Target) inProgress(t *testing.T, target string) {
	e := tg.envelope("slow", target, map[string]any{})
	slow := tg.Provider.hold(target)
	defer slow.release()
	done := make(chan Answer, 1)
	go func() {
		a, err := tg.post(delivered(e, 0))
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	select {
	case <-slow.arrived:
	case a := <-done:
		t.Fatalf("it was answered before it had its effect: %+v", a)
	case <-time.After(30 * time.Second):
		t.Fatal("the command did not reach the provider")
	}
	var seen []Answer
	for i := range 3 {
		a := tg.deliver(t, delivered(e, i+1))
		if a.Status != "processing" || a.CommandID == "" || a.CorrelationID == "" || a.StatusURL == "" {
			t.Fatalf("a duplicate got status %q, command %q, correlation %q, status URL %q", a.Status, a.CommandID, a.CorrelationID, a.StatusURL)
		}
		seen = append(seen, a)
		if a.CommandID != seen[0].CommandID || a.StatusURL != seen[0].StatusURL || a.CorrelationID != seen[0].CorrelationID {
			t.Errorf("the answers differ: %+v and %+v", seen[0], a)
		}
	}
	state := func(want string) {
		t.Helper()
		if a := tg.status(t, seen[0].StatusURL); a.Status != want {
			t.Errorf("its state is said to be %q, want %s", a.Status, want)
		}
		tg.effects(t, target, 1)
	}
	state("in_progress")
	slow.release()
	if a := <-done; a.Status != "executed" || a.CommandID != seen[0].CommandID {
		t.Errorf("the first delivery got status %q of command %s", a.Status, a.CommandID)
	}
	state("executed")
}

func (tg *Target) status(t *testing.T, at string) Answer {
	t.Helper()
	var a Answer
	base, err := url.Parse(tg.URL)
	if err == nil {
		base, err = base.Parse(at)
	}
	if err == nil {
		a, err = tg.request(http.MethodGet, base.String(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (tg *Target) collision(t *testing.T, target string) {
	e := tg.envelope("charge", target, map[string]any{"amount": 1})
	key := "key-of-" + target
	first := tg.settled(t, with(e, map[string]any{"idempotency_key": key}), 0)
	executed(t, first)
	other := tg.envelope("charge", target, map[string]any{"amount": 999})
	a := tg.deliver(t, with(delivered(other, 1), map[string]any{"idempotency_key": key}))
	if a.Status != "rejected" || a.Reason != "idempotency_conflict" {
		t.Fatalf("status %q, reason %q; want rejected, idempotency_conflict", a.Status, a.Reason)
	}
	if len(a.Outcome) != 0 || a.Summary != "" {
		t.Error("the other command's outcome is shown")
	}
	tg.effects(t, target, 1)
	again := tg.settled(t, with(e, map[string]any{"idempotency_key": key}), 2)
	if again.OutcomeRef != first.OutcomeRef {
		t.Error("the collision changed the outcome")
	}
	if tg.WithoutEvidence {
		t.Error("the implementation emits no evidence of collisions (VIII.D)")
		return
	}
	all := tg.evidence(t, first.CommandID, "conflict_rejected")
	ev := find(all, "conflict_rejected")
	switch {
	case ev == nil:
		t.Errorf("there is no evidence of the collision: %+v", all)
	case len(ev.Fingerprints) != 2 || ev.Fingerprints[0] == ev.Fingerprints[1] || ev.Fingerprints[0] == "":
		t.Errorf("the evidence has the fingerprints %q, want both envelopes'", ev.Fingerprints)
	case ev.Executed:
		t.Error("the evidence says that it was executed")
	}
}

func (tg *Target) confirmation(t *testing.T, target, other string) {
	e := tg.envelope("confirmed", target, map[string]any{"amount": 1})
	asked := tg.deliver(t, delivered(e, 0))
	token := asked.Confirmation.Token
	if asked.Status != "confirmation_required" || token == "" {
		t.Fatalf("status %q with the token %q, want confirmation_required with one", asked.Status, token)
	}
	tg.effects(t, target, 0)
	confirm := func(e map[string]any, token string, i int) map[string]any {
		e = with(delivered(e, i), map[string]any{"command_id": asked.CommandID})
		tg.Confirm(e, token)
		return e
	}
	// Another token is refused, as is this one for another command or another amount.
	wrong := strings.Repeat("A", len(token))
	if a := tg.deliver(t, confirm(e, wrong, 1)); a.Status == "executed" || a.Status == "processing" {
		t.Errorf("a wrong token got status %q", a.Status)
	}
	tg.deliver(t, confirm(tg.envelope("confirmed", other, map[string]any{"amount": 1}), token, 2))
	tg.deliver(t, confirm(tg.envelope("confirmed", target, map[string]any{"amount": 2}), token, 3))
	tg.deliver(t, with(confirm(e, token, 4), map[string]any{"command_id": "another"}))
	tg.effects(t, other, 0)
	tg.effects(t, target, 0)

	tg.together(t, 50, func(i int) map[string]any { return confirm(e, token, 10+i) })
	tg.effects(t, target, 1)
	for i, again := range []map[string]any{e, confirm(e, token, 100)} {
		a := tg.settled(t, again, 101+i)
		if a.Status != "executed" || a.Decision != "duplicate_replayed" || a.Confirmation.Token != "" {
			t.Errorf("a duplicate afterwards got status %q, decision %q, and a prompt: %v", a.Status, a.Decision, a.Confirmation.Token != "")
		}
	}
	tg.effects(t, target, 1)
}

// evidence waits until there is evidence of a decision about a command, or a while has passed.
func (tg *Target) evidence(t *testing.T, commandID, decision string) []Evidence {
	t.Helper()
	return until(5*time.Second, func() ([]Evidence, bool) {
		list, err := tg.Evidence(t.Context(), commandID)
		if err != nil {
			t.Fatal(err)
		}
		return list, find(list, decision) != nil
	})
}

func find(list []Evidence, decision string) *Evidence {
	i := slices.IndexFunc(list, func(ev Evidence) bool { return ev.Decision == decision })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (tg *Target) vectors(t *testing.T) {
	if tg.Key == nil {
		t.Skip("the target has no Key: the vectors are not tried")
	}
	var file struct {
		Vectors []struct {
			Name, Envelope, Canonical, Key, Error string

			Registered bool
		}
	}
	text, _ := ids.Vectors()
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Vectors {
		if v.Envelope == "" {
			continue // not UTF-8, which an implementation's own reader may handle
		}
		canonical, key, err := tg.Key([]byte(v.Envelope), v.Registered)
		switch {
		case v.Error != "" && err == nil:
			t.Errorf("%s: it has the key %s, and should be refused", v.Name, key)
		case v.Error == "" && (err != nil || canonical != v.Canonical || key != v.Key):
			t.Errorf("%s: %s\n%s\n%v; want %s\n%s", v.Name, key, canonical, err, v.Key, v.Canonical)
		}
	}
}
