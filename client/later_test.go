package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store"
)

// A client works with those functions of package dispatch that are for people.
var (
	_ dispatch.Settler  = (*client.Client)(nil)
	_ dispatch.Searcher = (*client.Client)(nil)
)

func TestMessagesAreReplayedAndDiscarded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		ans, err := c.Do(t.Context(), call("k"), func(_ context.Context, x semel.Execution) (semel.Result, error) {
			return data("1"), errors.Join(
				semel.Send(x, semel.Message{Name: "a", Destination: "billing", Payload: []byte("x")}),
				semel.Send(x, semel.Message{Name: "b", Destination: "billing"}))
		})
		must(t, err)
		a, b := ans.Record.Outbox[0].ID, ans.Record.Outbox[1].ID
		_, err = dispatch.Discard(t.Context(), c, id("k"), a, "too early")
		wantCode(t, err, semel.CodeIllegalTransition) // it is not parked
		for _, m := range []string{a, b} {
			_, err := s.engine.Internal().SettleMessage(t.Context(), id("k"), m, store.MessageFinding{State: store.MessageParked, Failure: &store.Failure{Code: "status_410"}})
			must(t, err)
		}
		why := func(text string) *store.Failure { return &store.Failure{Message: text} }
		for _, f := range []store.MessageFinding{
			{State: store.MessageDelivered}, {State: store.MessageParked}, {State: store.MessagePending}, {State: store.MessageDiscarded, Replay: true},
			{State: store.MessagePending, Replay: true, RetryAfter: time.Second}, {State: store.MessageDiscarded, Untried: true}, {},
		} {
			_, err := c.SettleMessage(t.Context(), id("k"), a, f)
			wantCode(t, err, semel.CodeUnsupported)
		}
		rec, err := c.SettleMessage(t.Context(), id("k"), a, store.MessageFinding{State: store.MessagePending, Replay: true, Failure: why("it is back")})
		must(t, err)
		if m := rec.Outbox[0]; m.State != store.MessagePending || m.Tries != 0 || *m.Failure != (store.Failure{Code: "replayed", Message: "it is back"}) {
			t.Errorf("got %+v", m)
		}
		rec, err = dispatch.Discard(t.Context(), c, id("k"), b, "not wanted")
		must(t, err)
		if m := rec.Outbox[1]; m.State != store.MessageDiscarded || *m.Failure != (store.Failure{Code: "discarded", Message: "not wanted"}) {
			t.Errorf("got %+v", m)
		}
		_, err = c.SettleMessage(t.Context(), id("k"), "no/such message", store.MessageFinding{State: store.MessageDiscarded})
		wantCode(t, err, semel.CodeNotFound)
		var found []string
		for f, err := range dispatch.Find(t.Context(), c, dispatch.Query{States: []store.MessageState{store.MessagePending, store.MessageDiscarded}}) {
			must(t, err)
			found = append(found, f.Message.ID)
		}
		if !slices.Equal(found, []string{a, b}) {
			t.Errorf("found %q", found)
		}
	})
}

func TestCallsAreCompensated(t *testing.T) {
	undone := 0
	op := semel.Operation{Name: "op", Compensation: "undo", Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		undone++
		return data("undone"), nil
	}}
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		_, err := c.Compensate(t.Context(), id("k"), "too early")
		wantCode(t, err, semel.CodeNotFound)
		_, err = c.Do(t.Context(), call("k"), answers(data("1"), nil))
		must(t, err)
		for range 2 {
			rec, err := c.Compensate(t.Context(), id("k"), "the wrong address")
			must(t, err)
			by := rec.Compensation
			if by == nil || by.State != store.CompensationDone || by.Reason != "the wrong address" || by.Principal != "shop" || undone != 1 {
				t.Fatalf("got %+v after %d", by, undone)
			}
			twin, err := c.Lookup(t.Context(), by.ID("acme"))
			if must(t, err); string(twin.Result.Data) != "undone" {
				t.Errorf("got %+v", twin)
			}
		}
	}, op, semel.Operation{Name: "undo"})
}

// A call of a sequence is one number of it, for which the service has a record of its own.
func TestRemoteCallsOfASequence(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		for n := range uint64(2) {
			second := call("k")
			second.Sequence = n + 1
			for _, decision := range []semel.Decision{semel.Execute, semel.Replay} {
				ans, err := c.Do(t.Context(), second, answers(data("x"), nil))
				if must(t, err); ans.Decision != decision || ans.Record.Sequence != n+1 {
					t.Errorf("number %d: %s, of number %d", n+1, ans.Decision, ans.Record.Sequence)
				}
			}
		}
	}, semel.Operation{Name: "op", Sequenced: true})
}
