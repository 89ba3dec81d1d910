package commerce

import (
	"cmp"
	"context"
	"errors"

	"github.com/semelhq/semel"
)

// Orders places the order of each cart mandate once (MAP-ORD.1).
//
// Give the table of orders a unique constraint on the mandate's ID as a second guard. It
// holds where the engine isn't asked, such as in a migration, and after an operator has let
// an order run again that was placed before.
type Orders struct {
	mandates *Mandates
	op       semel.Operation
}

// NewOrders registers the operation of orders with the engine of the mandates. Its name
// defaults to commerce.order. Its window must not be shorter than a cart mandate's life, or
// a mandate could be ordered once more.
func NewOrders(m *Mandates, op semel.Operation) (*Orders, error) {
	op.Name = cmp.Or(op.Name, "commerce.order")
	if err := m.engine.Register(op); err != nil {
		return nil, err
	}
	if op, _ = m.engine.Internal().Operation(op.Name); op.Window < m.cart.Window {
		return nil, errors.New("commerce: the Window of orders is shorter than the life of a cart mandate")
	}
	return &Orders{m, op}, nil
}

// Call is the call of an order, for other ways to run it than [Orders.Place], such as
// [semel.Engine.DoTx]. Its handler then calls [Mandates.Require] itself.
func (o *Orders) Call(b Buyer, mandate string) (semel.Call, error) {
	key, err := Order.Key(Values{"cart_mandate_id": mandate, "user_id": b.User})
	call := semel.Call{Tenant: b.Tenant, Principal: b.User, Operation: o.op.Name}
	key.Name(&call)
	return call, err
}

// Place places the order of a mandate by place, unless it was placed; then everybody gets
// that order. [ErrMandateExpired] means that there was none in time. The order of a mandate
// can be repeated after the mandate has expired, for as long as the operation's window.
func (o *Orders) Place(ctx context.Context, b Buyer, mandate string, place func(ctx context.Context, x semel.Execution, m Mandate) (semel.Result, error)) (semel.Answer, error) {
	call, err := o.Call(b, mandate)
	if err != nil {
		return semel.Answer{}, err
	}
	ans, err := o.mandates.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		m, err := o.mandates.Require(ctx, x, b, mandate)
		if err != nil {
			return semel.Result{}, err
		}
		return place(ctx, x, m)
	})
	return ans, refusedFor(&ans, err)
}
