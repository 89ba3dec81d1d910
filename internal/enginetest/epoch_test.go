package enginetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

func TestEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		opts := &semel.Options{Operations: []semel.Operation{{Name: "op"}}}
		newEngine := func() *semel.Engine {
			e, err := semel.New(st, opts)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := newEngine()
		if at, err := e.Internal().LoadEpoch(t.Context()); err != nil || !at.IsZero() {
			t.Fatal("a store that was never restored has the epoch", at, err)
		}
		begin := func(e *semel.Engine, key string, first time.Time) semel.Decision {
			t.Helper()
			ans, err := e.Begin(t.Context(), semel.Call{Operation: "op", Key: key, FirstSent: first})
			if err != nil {
				t.Fatal(err)
			}
			if ans.Attempt != nil {
				if err := ans.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
					t.Fatal(err)
				}
			}
			return ans.Decision
		}
		kept := time.Now().Add(-time.Hour)
		if d := begin(e, "in the backup", kept); d != semel.Execute {
			t.Fatal(d)
		}
		epoch, err := e.Internal().NewEpoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := newEngine() // another node, or a restart
		if at, err := other.Internal().LoadEpoch(t.Context()); err != nil || !at.Equal(epoch) {
			t.Fatal("another engine sees the epoch", at, err, "want", epoch)
		}
		for name, e := range map[string]*semel.Engine{"a": e, "b": other} {
			if d := begin(e, "in the backup", kept); d != semel.Replay {
				t.Error("what is recorded is replayed, not", d)
			}
			if d := begin(e, "lost "+name, epoch.Add(-time.Hour)); d != semel.TooLate {
				t.Error("a call first sent before the restore, of which nothing is recorded, got", d)
			}
			if d := begin(e, "new "+name, epoch.Add(time.Hour)); d != semel.Execute {
				t.Error("a call first sent after the restore got", d)
			}
			if d := begin(e, "undated "+name, time.Time{}); d != semel.Execute {
				t.Error("a call that does not say when it was sent got", d)
			}
		}
		st.Advance(semel.DefaultWindow + time.Hour)
		if d := begin(e, "old", epoch.Add(-time.Hour)); d != semel.Execute {
			t.Error("after the window a duplicate is a new call, and got", d)
		}
		if again, err := other.Internal().NewEpoch(t.Context()); err != nil || !again.After(epoch) {
			t.Error("a second restore:", again, err)
		}
	})
}

// A call may have been executed and lost although its client's clock says that it was
// first sent after the restore.
func TestANewEpochAllowsForTheClocksOfClients(t *testing.T) {
	ops := []semel.Operation{{Name: "op"}, {Name: "short", Window: 20 * time.Second}}
	for _, c := range []struct {
		operation string
		after     time.Duration
		want      semel.Decision
	}{
		{"op", 0, semel.TooLate},
		{"op", 30 * time.Second, semel.TooLate},
		{"op", semel.DefaultClockSkew - 1, semel.TooLate},
		{"op", semel.DefaultClockSkew, semel.Execute},
		{"short", 5*time.Second - 1, semel.TooLate}, // a quarter of the window
		{"short", 5 * time.Second, semel.Execute},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, err := semel.New(memstore.New(), &semel.Options{Operations: ops})
			must(t, err)
			epoch, err := e.Internal().NewEpoch(t.Context())
			must(t, err)
			ans := decides(t, e, semel.Call{Operation: c.operation, Key: "k", FirstSent: epoch.Add(c.after)}, c.want)
			if c.want == semel.TooLate {
				wantCode(t, ans.Err(), semel.CodeTooLate)
			}
			must(t, e.Close(t.Context()))
		})
	}
}

func TestReservedOperations(t *testing.T) {
	if err := (semel.Operation{Name: "semel.epoch"}).Validate(); err == nil {
		t.Fatal("an operation may take a name that belongs to the engine")
	}
}
