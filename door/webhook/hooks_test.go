package webhook

import (
	"net/http"
	"slices"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// TestHooksOfOneEvent: two hooks, or two apps, get an event under one delivery id, each with
// its own payload, and each is handled once.
func TestHooksOfOneEvent(t *testing.T) {
	for _, header := range []string{"X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID"} {
		r := newRig(t, "github")
		to := func(hook string) *Delivery {
			return resign(t, "github", `{"installation":{"id":`+hook+`}}`, header, hook)
		}
		for range 3 {
			r.want(to("1"), http.StatusOK)
			r.want(to("2"), http.StatusOK)
		}
		if n := r.once(); n != 2 || len(r.parked()) != 0 {
			t.Errorf("%s: %d are handled, %d parked", header, n, len(r.parked()))
		}
		r.want(resign(t, "github", `{"forged":1}`, header, "2"), http.StatusOK)
		if n := r.once(); n != 2 || len(r.parked()) != 1 {
			t.Errorf("%s: another content of a hook: %d are handled, %d parked", header, n, len(r.parked()))
		}
		r.want(resign(t, "github", `{"forged":1}`, header, "3"), http.StatusOK)
		if n := r.once(); n != 3 || len(r.parked()) != 1 {
			t.Errorf("%s: a third hook with that: %d are handled, %d parked", header, n, len(r.parked()))
		}
	}
}

// TestAParkedHookOfAnEarlierVersion: one that didn't tell hooks apart has parked the second
// hook's event, and somebody has replayed it. It isn't handled again, and what was never
// parked is.
func TestAParkedHookOfAnEarlierVersion(t *testing.T) {
	s, err := Builtin("github")
	if err != nil {
		t.Fatal(err)
	}
	before := *s
	before.rules = slices.Clone(s.rules)
	before.rules[0].apart = nil
	r := newRig(t, "github")
	r.receiver.source = &before
	to := func(hook string) *Delivery {
		return resign(t, "github", `{"installation":{"id":`+hook+`}}`, "X-GitHub-Hook-ID", hook)
	}
	r.want(to("1"), http.StatusOK)
	r.want(to("2"), http.StatusOK)
	for id, m := range r.parked() {
		if _, err := r.engine.Internal().SettleMessage(t.Context(), id, m.ID, store.MessageFinding{State: store.MessagePending, Replay: true}); err != nil {
			t.Fatal(err)
		}
		if err := r.receiver.Work(t.Context(), m.Payload); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.once(); n != 2 {
		t.Fatalf("%d are handled before the upgrade", n)
	}
	r.receiver.source = s
	for range 2 {
		r.want(to("1"), http.StatusOK)
		r.want(to("2"), http.StatusOK)
		if n := r.once(); n != 2 {
			t.Fatalf("%d are handled after the upgrade", n)
		}
	}
	r.want(to("3"), http.StatusOK)
	if n := r.once(); n != 3 {
		t.Errorf("%d are handled with a third hook", n)
	}
	if got := r.decisions(); slices.Contains(got, semel.InFlight) {
		t.Errorf("%v", got)
	}
}
