package semeltest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semeltest"
)

// shop creates orders; it is what you test.
type shop struct{ orders int }

func (s *shop) consume(ctx context.Context, engine *semel.Engine, message string) error {
	call := semel.Call{
		Principal: "shop", Operation: "orders.create", Key: message,
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(message)),
	}
	_, _, err := semel.Do(ctx, engine, call, func(context.Context, semel.Execution) (int, error) {
		s.orders++
		return s.orders, nil
	})
	return err
}

// TestOrders is shown in docs/testing.md.
func TestOrders(t *testing.T) {
	// snippet: Orders
	w := semeltest.New(t, &semel.Options{Operations: []semel.Operation{{Name: "orders.create"}}})
	s := new(shop)

	// The process dies after the order was created, before anybody knew.
	w.Crash(semeltest.BeforeOutcome, func() { _ = s.consume(t.Context(), w.Engine, "m-1") })
	w.Advance(time.Hour) // the lease of the dead process is over
	if err := s.consume(t.Context(), w.Engine, "m-1"); !errors.Is(err, semel.ErrHeld) {
		t.Errorf("nobody can know whether there is an order, and the message gets %v", err)
	}

	// Nothing happens to this one.
	_ = s.consume(t.Context(), w.Engine, "m-2")
	_ = s.consume(t.Context(), w.Engine, "m-2")
	w.RanOnce(semel.ID{Principal: "shop", Operation: "orders.create", Key: "m-2"})
	if s.orders != 2 {
		t.Errorf("%d orders, want 2", s.orders)
	}
	// end snippet
}
