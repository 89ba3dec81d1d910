package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// replay has each parked message delivered again, as an operator and a dispatcher do.
func (r *rig) replay() {
	r.t.Helper()
	settle := func(id semel.ID, m string, f store.MessageFinding) {
		if _, err := r.engine.Internal().SettleMessage(context.Background(), id, m, f); err != nil {
			r.t.Fatal(err)
		}
	}
	for id, m := range r.parked() {
		settle(id, m.ID, store.MessageFinding{State: store.MessagePending, Replay: true})
		err := r.receiver.Work(context.Background(), m.Payload)
		_, refused := errors.AsType[*Refusal](err)
		switch {
		case err == nil:
			settle(id, m.ID, store.MessageFinding{State: store.MessageDelivered})
		case refused:
			settle(id, m.ID, store.MessageFinding{State: store.MessageParked, Failure: &store.Failure{Message: err.Error()}})
		}
	}
}

// An event of which nobody knows whether it was handled is held, and a copy of it waits until
// somebody decides.
func TestHeldEvents(t *testing.T) {
	sync := func(o *Options) { o.Mode, o.Evidence = Sync, "" }
	t.Run("it is parked, and replayed by one command", func(t *testing.T) {
		for name, c := range map[string]struct {
			replay error // of the handler
			parked int   // messages after that
			sender int   // what the sender gets then
			runs   int
		}{
			"it is done":             {nil, 0, http.StatusOK, 1},
			"nobody knows again":     {semel.Unknown(errors.New("no answer")), 1, http.StatusServiceUnavailable, 0},
			"it is refused for good": {semel.Rejected("no", errors.New("never")), 1, http.StatusOK, 0},
			"it may be tried again":  {errors.New("busy"), 0, http.StatusServiceUnavailable, 0},
		} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, "github", sync)
				_, d := vectorOf(t, "github")
				r.fail = semel.Unknown(errors.New("no answer"))
				for range 3 { // it is parked once
					r.want(d, http.StatusServiceUnavailable)
				}
				parked := r.parked()
				if len(parked) != 1 || len(r.handled) != 0 || r.tries != 1 {
					t.Fatalf("%d are parked, handled %v by %d tries", len(parked), r.handled, r.tries)
				}
				for _, m := range parked {
					if m.Failure == nil || m.Failure.Code != "held" {
						t.Errorf("parked because of %+v", m.Failure)
					}
				}
				first := r.tried
				r.fail = c.replay
				r.replay()
				if r.tries != 2 || r.tried != first {
					t.Errorf("tried %d times, as %s and as %s", r.tries, first, r.tried)
				}
				if len(r.handled) != c.runs || len(r.parked()) != c.parked {
					t.Errorf("handled %v, %d are parked", r.handled, len(r.parked()))
				}
				r.want(d, c.sender)
			})
		}
	})
	t.Run("a copy that is replayed when the event was settled is done", func(t *testing.T) {
		r := newRig(t, "github", sync)
		_, d := vectorOf(t, "github")
		r.fail = semel.Unknown(errors.New("no answer"))
		r.want(d, http.StatusServiceUnavailable)
		page, err := r.engine.Search(t.Context(), store.Query{State: semel.Processing})
		if err != nil || len(page.Records) != 1 {
			t.Fatal(page, err)
		}
		if _, err := r.engine.Settle(t.Context(), page.Records[0].ID, semel.Settlement{Outcome: semel.DispositionCompleted}, "seen"); err != nil {
			t.Fatal(err)
		}
		r.replay()
		if r.tries != 1 || len(r.parked()) != 0 {
			t.Errorf("tried %d times, %d are parked", r.tries, len(r.parked()))
		}
	})
}
