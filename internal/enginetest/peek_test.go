package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		e, err := semel.New(store, &semel.Options{Operations: []semel.Operation{{Name: "charge"}, {Name: "look", Class: semel.ReadOnly}}})
		if err != nil {
			t.Fatal(err)
		}
		call := func(op, payload string) semel.Call {
			return semel.Call{Operation: op, Key: "k", Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload))}
		}
		want := func(what string, c semel.Call, d semel.Decision) semel.Answer {
			t.Helper()
			ans, err := e.Internal().Peek(t.Context(), c)
			if err != nil || ans.Decision != d || ans.Attempt != nil {
				t.Fatalf("%s: %s, %v; want %s without an attempt", what, ans.Decision, err, d)
			}
			return ans
		}
		want("nothing is stored", call("charge", "a"), semel.Execute)
		want("nothing is stored, again", call("charge", "a"), semel.Execute)
		want("a call that is not recorded", call("look", "a"), semel.Execute)
		ans, err := e.Begin(t.Context(), call("charge", "a"))
		if err != nil || ans.Attempt == nil {
			t.Fatalf("%s, %v: a look took the call", ans.Decision, err)
		}
		want("it runs", call("charge", "a"), semel.InFlight)
		want("it runs with another payload", call("charge", "b"), semel.Conflict)
		ans.Attempt.Detach()
		<-time.After(semel.DefaultLease)
		if held := want("its holder is gone", call("charge", "a"), semel.Held); !held.Record.Held {
			t.Error("it does not say why it is held")
		}
		if rec, err := e.Lookup(t.Context(), ans.Record.ID); err != nil || rec.Held {
			t.Errorf("a look changed the record: %+v, %v", rec, err)
		}
		if err := ans.Attempt.Complete(context.Background(), semel.Result{Data: []byte("done")}); err != nil {
			t.Fatal(err)
		}
		if got := want("it is done", call("charge", "a"), semel.Replay); string(got.Record.Result.Data) != "done" {
			t.Errorf("it shows %q", got.Record.Result.Data)
		}
	})
}
