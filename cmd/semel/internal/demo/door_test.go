package demo

import (
	"context"
	"net/http"

	"github.com/semelhq/semel"
)

// door is a way into Semel that the tour visits. Each is a file of its own; what they
// share is the storm, the ledger and the count.
type door interface {
	// name is what the table calls it, in at most 14 letters.
	name() string
	// slug names its orders.
	slug() string
	// configure adds to Semel's configuration. It is called before each start.
	configure(c *setup) error
	// serve adds what the door leads to to the toy service. Its paths are those of the
	// door, so that everything finds its way without a guard.
	serve(p *provider, mux *http.ServeMux)
	// deliver sends an order once. A copy is one sender, which sends the same until it
	// has a final reply.
	deliver(ctx context.Context, t *target, o order, copy int) (reply, error)
	// result is what an operator says that a call led to whose charge is in the ledger.
	result(c Charge) semel.Result
}

// workplace is a door whose senders charge by themselves. They outlive Semel, and can be
// gone in the middle of their work. At other doors a sender that hangs up closes its
// connection.
type workplace interface {
	// leave begins an order, and never ends it.
	leave(ctx context.Context, t *target, o order, copy int) error
	// working reports whether somebody may be about to charge for a key.
	working(key string) bool
}

// doors are the doors of the tour, in its order.
func doors() []door {
	return []door{httpDoor{}, &apiDoor{}, commandDoor{}, forrstDoor{}, webhookDoor{}, inboxDoor{}}
}

// target is what a sender knows of the servers.
type target struct {
	client    *client
	guard     string // Semel
	provider  string // the toy service itself
	token     string // the sender's credential
	unguarded bool
	// killed is closed when Semel has been killed.
	killed <-chan struct{}
}

// bearer is the header with the sender's credential.
func (t *target) bearer() http.Header {
	return http.Header{"Authorization": {"Bearer " + t.token}}
}

// reply is what a delivery got.
type reply struct {
	// final: another delivery would get the same.
	final bool
	// good: the order was charged.
	good bool
	// same is what every copy of the order gets.
	same string
}

// httpReply is a reply whose status says everything, to somebody who may read same.
func httpReply(a answer, same string) reply {
	return reply{final: !a.retryable(), good: a.ok(), same: same}
}
