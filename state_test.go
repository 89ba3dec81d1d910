package semel

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

var (
	allStates = []State{absent, Processing, Completed, Failed}
	allEvents = []event{evOpen, evRenew, evEffect, evHold, evComplete, evReject, evFail, evAbort, evAbandon, evMessage, evCompensate, evConfirm, evForget}
)

func TestMachineAllowsExactlyItsTransitions(t *testing.T) {
	clause.Proves(t, "CORE-STATE.1", "CORE-STATE.2")
	type pair struct {
		from State
		ev   event
	}
	want := map[pair]State{
		{absent, evOpen}:         Processing,
		{Processing, evRenew}:    Processing,
		{Processing, evEffect}:   Processing,
		{Processing, evHold}:     Processing,
		{Processing, evComplete}: Completed,
		{Processing, evReject}:   Failed,
		{Processing, evFail}:     Failed,
		{Processing, evAbort}:    Failed,
		{Processing, evAbandon}:  Failed,

		{Completed, evMessage}:    Completed,
		{Completed, evCompensate}: Completed,
		{Failed, evConfirm}:       Failed,
		{Completed, evForget}:     Completed,
		{Failed, evForget}:        Failed,
	}
	if len(allEvents) != int(eventCount)-1 {
		t.Fatalf("this test knows %d events, the machine has %d", len(allEvents), eventCount-1)
	}
	for _, from := range allStates {
		for _, ev := range allEvents {
			r := Record{State: from, Disposition: map[State]store.Disposition{Completed: DispositionCompleted, Failed: DispositionAborted}[from]}
			err := step(&r, ev)
			to, allowed := want[pair{from, ev}]
			switch {
			case allowed && (err != nil || r.State != to):
				t.Errorf("%s from %q: got %q, %v; want %q", eventNames[ev], from, r.State, err, to)
			case !allowed && (!errors.Is(err, &Error{Code: CodeIllegalTransition}) || r.State != from):
				t.Errorf("%s from %q: got %q, %v; want a refusal that changes nothing", eventNames[ev], from, r.State, err)
			}
			if err == nil && (r.Disposition != unended) != r.State.Terminal() {
				t.Errorf("%s from %q: disposition %q in state %q", eventNames[ev], from, r.Disposition, r.State)
			}
			if !slices.Contains(allStates, r.State) {
				t.Errorf("%s from %q: %q is not one of the three states", eventNames[ev], from, r.State)
			}
		}
	}
}

// namesOf checks the text of each value, by its number, and that no other is read
// or written as one of them.
func namesOf[T interface {
	~uint8
	String() string
	MarshalText() ([]byte, error)
}](t *testing.T, read func(*T, []byte) error, names map[T]string) {
	t.Helper()
	for n := range 256 {
		v := T(n)
		name, known := names[v]
		if !known {
			name = "unknown"
		}
		text, err := v.MarshalText()
		if v.String() != name || string(text) != name || err != nil {
			t.Errorf("%d is written as %q and %q, %v; want %q", n, v.String(), text, err, name)
		}
		back := T(200)
		if err := read(&back, text); known && (err != nil || back != v) {
			t.Errorf("%q is read as %d, %v; want %d", name, back, err, n)
		}
	}
	for _, text := range []string{"unknown", "Completed", "completed ", " failed", "held", "1", "\x00"} {
		v := T(200)
		if err := read(&v, []byte(text)); !errors.Is(err, &Error{Code: CodeInvalidCall}) || v != 200 {
			t.Errorf("%q is read as %d, %v; want a refusal that changes nothing", text, v, err)
		}
	}
}

func TestTextOfStatesAndDispositions(t *testing.T) {
	t.Run("states", func(t *testing.T) {
		namesOf(t, (*State).UnmarshalText, map[State]string{0: "", Processing: "processing", Completed: "completed", Failed: "failed"})
	})
	t.Run("dispositions", func(t *testing.T) {
		namesOf(t, (*store.Disposition).UnmarshalText, map[store.Disposition]string{
			0: "", DispositionCompleted: "completed", DispositionRejected: "rejected", DispositionFailed: "failed",
			DispositionAborted: "aborted", DispositionAbandoned: "abandoned",
		})
	})
}

// Stores keep the numbers.
func TestNumbersOfStatesAndDispositionsNeverChange(t *testing.T) {
	if got := []State{absent, Processing, Completed, Failed}; !slices.Equal(got, []State{0, 1, 2, 3}) {
		t.Errorf("states are %d", got)
	}
	ends := []store.Disposition{unended, DispositionCompleted, DispositionRejected, DispositionFailed, DispositionAborted, DispositionAbandoned}
	if !slices.Equal(ends, []store.Disposition{0, 1, 2, 3, 4, 5}) {
		t.Errorf("dispositions are %d", ends)
	}
}

func TestNoEventLeavesATerminalState(t *testing.T) {
	clause.Proves(t, "CORE-STATE.2", "CORE-INV.3")
	for _, row := range machine {
		if row.from.Terminal() && row.to != row.from {
			t.Errorf("the machine has a way out of %s: %+v", row.from, row)
		}
	}
}

func TestNoLaterFactChangesHowAnAttemptEnded(t *testing.T) {
	clause.Proves(t, "CORE-STATE.2")
	for _, row := range machine {
		if !row.from.Terminal() {
			continue
		}
		r := Record{State: row.from, Disposition: row.disposition}
		if err := step(&r, row.event); err != nil || r.State != row.from || r.Disposition != row.disposition {
			t.Errorf("an attempt that ended %s is %s after it was to %s: %v", row.disposition, r.Disposition, eventNames[row.event], err)
		}
	}
}

func TestDecide(t *testing.T) {
	clause.Proves(t, "CORE-INV.1", "CORE-INV.2", "MAP-FLOW.2", "MAP-FLOW.3", "MAP-FLOW.4", "IDS-IX.3")
	now := store.InstantOf(time.Unix(1000, 0))
	fp, other := FingerprintOf(SchemeRaw, []byte("a")), FingerprintOf(SchemeRaw, []byte("b"))
	call := Call{Fingerprint: fp, BoundTo: "me"}
	live, over := now.Add(time.Second), now
	started := []store.EffectRecord{{Name: "charge", State: store.EffectStarted}}
	confirmed := []store.EffectRecord{{Name: "charge", State: store.EffectConfirmed}}
	refuted := []store.EffectRecord{{Name: "charge", State: store.EffectRefuted}}
	earlier := func(ends ...store.Disposition) (at []store.AttemptRecord) {
		for _, d := range ends {
			at = append(at, store.AttemptRecord{Disposition: d})
		}
		return at
	}
	retryFailed := Operation{OnFailure: RetryFailure}
	retryLost := Operation{OnAbandoned: RetryAbandoned}
	declared := Operation{Effects: []string{"charge"}}
	for _, c := range []struct {
		name string
		op   Operation // by which the attempt was claimed too
		rec  Record
		want ruling
	}{
		{"an expired outcome counts as absent", Operation{}, Record{State: Completed, Fingerprint: other, ExpiresAt: now}, ruling{decision: Execute}},
		{"an outcome at the last instant of its window is replayed", Operation{}, Record{State: Completed, ExpiresAt: now.Add(1)}, ruling{decision: Replay}},
		{"another payload conflicts with an outcome", Operation{}, Record{State: Completed, Fingerprint: other}, ruling{decision: Conflict}},
		{"another payload conflicts before it is in flight", Operation{}, Record{State: Processing, Fingerprint: other, LeaseUntil: live}, ruling{decision: Conflict}},
		{"another payload conflicts with a held record", Operation{}, Record{State: Processing, Fingerprint: other, Held: true}, ruling{decision: Conflict}},
		{"completed is replayed", Operation{}, Record{State: Completed}, ruling{decision: Replay}},
		{"failed is replayed by default", Operation{}, Record{State: Failed, Disposition: DispositionFailed}, ruling{decision: Replay}},
		{"failed runs again under retry", retryFailed, Record{State: Failed, Disposition: DispositionFailed}, ruling{decision: Execute}},
		{"rejected is replayed under retry too", retryFailed, Record{State: Failed, Disposition: DispositionRejected}, ruling{decision: Replay}},
		{"aborted runs again", Operation{}, Record{State: Failed, Disposition: DispositionAborted}, ruling{decision: Execute}},
		{"abandoned runs again", Operation{}, Record{State: Failed, Disposition: DispositionAbandoned}, ruling{decision: Execute}},
		{"processing under a live lease is in flight", Operation{}, Record{State: Processing, LeaseUntil: live}, ruling{decision: InFlight}},
		{"held stays held, whatever the policy", retryLost, Record{State: Processing, Held: true}, ruling{decision: Held}},
		{"a holder that went away is held by default", Operation{}, Record{State: Processing, LeaseUntil: over}, ruling{decision: Held, hold: "a reason"}},
		{"a holder that went away is followed under retry", retryLost, Record{State: Processing, LeaseUntil: over}, ruling{decision: Execute}},
		{"a started effect forbids that", retryLost, Record{State: Processing, LeaseUntil: over, Effects: started}, ruling{decision: Held, hold: "a reason"}},
		{"declared effects of which none began allow it", declared, Record{State: Processing, LeaseUntil: over}, ruling{decision: Execute}},
		{"declared effects that are recorded allow it", declared, Record{State: Processing, LeaseUntil: over, Effects: confirmed}, ruling{decision: Execute}},
		{"a declared effect that was started forbids it", declared, Record{State: Processing, LeaseUntil: over, Effects: started}, ruling{decision: Held, hold: "a reason"}},
		{"effects that were not declared prove nothing", Operation{}, Record{State: Processing, LeaseUntil: over, Effects: confirmed}, ruling{decision: Held, hold: "a reason"}},
		{"an expired outcome of another caller counts as absent", Operation{}, Record{State: Completed, BoundTo: "you", ExpiresAt: now}, ruling{decision: Execute}},
		{"another caller gets no outcome", Operation{}, Record{State: Completed, BoundTo: "you"}, ruling{decision: OtherCaller}},
		{"another caller is not told of a conflict", Operation{}, Record{State: Completed, BoundTo: "you", Fingerprint: other}, ruling{decision: OtherCaller}},
		{"another caller is told that something is in flight", Operation{}, Record{State: Processing, BoundTo: "you", LeaseUntil: live}, ruling{decision: InFlight}},
		{"another caller is not told of a conflict in flight", Operation{}, Record{State: Processing, BoundTo: "you", LeaseUntil: live, Fingerprint: other}, ruling{decision: InFlight}},
		{"another caller is not told what is held", Operation{}, Record{State: Processing, BoundTo: "you", Held: true}, ruling{decision: OtherCaller}},
		{"another caller does not have an abandoned attempt held", Operation{}, Record{State: Processing, BoundTo: "you", LeaseUntil: over}, ruling{decision: OtherCaller}},
		{"another caller does not follow an abandoned attempt", retryLost, Record{State: Processing, BoundTo: "you", LeaseUntil: over}, ruling{decision: OtherCaller}},
		{"another caller does not run again what failed", retryFailed, Record{State: Failed, Disposition: DispositionFailed, BoundTo: "you"}, ruling{decision: OtherCaller}},
		{"another caller does not run again what was abandoned", Operation{}, Record{State: Failed, Disposition: DispositionAbandoned, BoundTo: "you"}, ruling{decision: OtherCaller}},
		{"another caller runs what was aborted", Operation{}, Record{State: Failed, Disposition: DispositionAborted, BoundTo: "you"}, ruling{decision: Execute}},
		{"another caller runs what was rejected, with another payload too", Operation{}, Record{State: Failed, Disposition: DispositionRejected, BoundTo: "you", Fingerprint: other}, ruling{decision: Execute}},
		{"another caller runs what was aborted through another door", Operation{}, Record{State: Failed, Disposition: DispositionAborted, BoundTo: "you", Door: "elsewhere"}, ruling{decision: Execute}},
		{"another caller runs what was aborted twice", Operation{}, Record{State: Failed, Disposition: DispositionAborted, BoundTo: "you", Earlier: earlier(DispositionAborted)}, ruling{decision: Execute}},
		{"another caller does not run what was aborted after it had failed", retryFailed, Record{State: Failed, Disposition: DispositionAborted, BoundTo: "you", Earlier: earlier(DispositionFailed)}, ruling{decision: OtherCaller}},
		{"another caller does not run what was rejected after it was abandoned", Operation{}, Record{State: Failed, Disposition: DispositionRejected, BoundTo: "you", Earlier: earlier(DispositionAbandoned, DispositionAborted)}, ruling{decision: OtherCaller}},
		{"another caller does not run what had an effect", Operation{}, Record{State: Failed, Disposition: DispositionAborted, BoundTo: "you", Effects: confirmed}, ruling{decision: OtherCaller}},
		{"another caller does not run what may have had an effect", Operation{}, Record{State: Failed, Disposition: DispositionRejected, BoundTo: "you", Effects: started}, ruling{decision: OtherCaller}},
		{"another caller runs what was refused an effect", Operation{}, Record{State: Failed, Disposition: DispositionRejected, BoundTo: "you", Effects: refuted}, ruling{decision: Execute}},
		{"a record that is bound to nobody is another caller's too", Operation{}, Record{State: Completed, BoundTo: "nobody"}, ruling{decision: OtherCaller}},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := c.op.withDefaults()
			switch c.rec.BoundTo {
			case "":
				c.rec.BoundTo = "me"
			case "nobody":
				c.rec.BoundTo = ""
			}
			if c.rec.Fingerprint.IsZero() {
				c.rec.Fingerprint = fp
			}
			c.rec.Policy = op.promise(&Call{})
			got := decide(&op, &call, &c.rec, now, now)
			if got.decision != c.want.decision || (got.hold != "") != (c.want.hold != "") {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			// What was claimed under another declaration is judged by that.
			successor := Operation{OnAbandoned: RetryAbandoned, Effects: []string{"charge"}, OnFailure: op.OnFailure}.withDefaults()
			if again := decide(&successor, &call, &c.rec, now, now); again != got {
				t.Errorf("the successor's policy gives %+v, the attempt's own %+v", again, got)
			}
			// Of what a backup has nothing is executed that it has unfinished.
			want := got
			if got.decision == Execute && !c.rec.Expired(now) {
				want = ruling{decision: Held, hold: heldRestored}
				if c.rec.BoundTo != "me" {
					want = ruling{decision: OtherCaller}
				}
			}
			if restored := decideRestored(got, &call, &c.rec, now); restored != want {
				t.Errorf("restored: got %+v, want %+v", restored, want)
			}
		})
	}
}

// TestHistoryForgetsHarmlessAttemptsFirst: whatever followed it, an attempt that may have
// had an effect stays in the history, so the key never becomes free for others.
func TestHistoryForgetsHarmlessAttemptsFirst(t *testing.T) {
	var at []store.AttemptRecord
	for n := 1; n <= 4*store.MaxEarlier; n++ {
		d := DispositionAborted
		if n == 3 || n > 2*store.MaxEarlier && n%2 == 0 {
			d = DispositionFailed
		}
		at = followedBy(at, store.AttemptRecord{Number: n, Disposition: d})
		if len(at) > store.MaxEarlier || at[len(at)-1].Number != n {
			t.Fatalf("after attempt %d the history is %v", n, at)
		}
		if nothingHappened(&Record{State: Failed, Disposition: DispositionAborted, Earlier: at}) != (n < 3) {
			t.Fatalf("after attempt %d the history forgets what may have happened", n)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	op := &operation{Operation: Operation{Name: "op"}.withDefaults()}
	now := store.InstantOf(time.Unix(1000, 0))
	cur := &Record{}
	for n := 1; n <= 3*store.MaxEarlier; n++ {
		d := delivery{engine: &Engine{node: "node"}, op: op, id: ID{Operation: "op", Key: "k"}, cur: cur, at: reading{now: now}}
		next, err := d.open()
		if err != nil {
			t.Fatal(err)
		}
		if next.Attempt != n || next.Fence <= cur.Fence || len(next.Earlier) != min(n-1, store.MaxEarlier) {
			t.Fatalf("attempt %d has number %d, fence %d after %d and %d earlier ones", n, next.Attempt, next.Fence, cur.Fence, len(next.Earlier))
		}
		if n > 1 && (next.Origin != cur.Origin || next.Earlier[len(next.Earlier)-1].Number != n-1) {
			t.Fatalf("attempt %d does not continue its call", n)
		}
		if cur, err = end(next, evAbort, now, Result{}, nil); err != nil {
			t.Fatal(err)
		}
	}
}
