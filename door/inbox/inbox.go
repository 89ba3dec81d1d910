package inbox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// acceptLease is short, because accepting an item is two writes without external effects. If a
// node dies between them, the next delivery waits for the lease to end.
const acceptLease = 2 * time.Second

// MaxBody is the longest body that an item can be queued or parked with, in bytes. The outbox
// keeps the rest for the head.
const MaxBody = semel.MaxOutbox - 64<<10

// AfterConflict says what happens to an item if its key came with other content.
type AfterConflict string

// What may happen to it.
const (
	// DropConflict keeps only what [Result] and the evidence log have.
	DropConflict AfterConflict = "drop"
	// ParkConflict keeps it in the outbox until an operator replays or discards it. It also
	// keeps a copy of an item that should have been done at once and was held.
	ParkConflict AfterConflict = "park"
)

// Options configure an [Inbox].
type Options[H any] struct {
	// Name is the name of the operation that accepts items. Required.
	Name string
	// Destination is the destination of accepted items in the outbox. Defaults to Name.
	Destination string
	// Door and Principal go into the records. Nobody else may use the principal, because the
	// records decide which items are handled. Required.
	Door, Principal string
	// Window is how long an item is recognised. Required. Remember is as in [semel.Operation].
	Window, Remember time.Duration
	// Budget is how long a delivery waits for another delivery of the same item. Required.
	Budget time.Duration
	// Evidence is how much goes to the evidence log.
	Evidence semel.EvidenceLevel
	// OnConflict defaults to [DropConflict].
	OnConflict AfterConflict
	// Lease and OnAbandoned are for items that are handled at once, see [Item].Now.
	// Accepting an item has no external effect, so by default the lease is short and an
	// abandoned attempt runs again.
	Lease       time.Duration
	OnAbandoned semel.AfterAbandon
	// Handle handles an accepted item. Required. After an error it gets the item again,
	// unless the error is a [*Refusal].
	Handle func(ctx context.Context, it *Item[H]) error
}

// Inbox accepts items and passes them to a handler. It has no state of its own: any number of
// them, on any number of nodes, may serve one store. Its methods may be called concurrently.
type Inbox[H any] struct {
	engine *semel.Engine
	opts   Options[H]
}

// New makes an inbox and registers its operation. You need a dispatcher that passes the
// messages of its destination to [Inbox.Work].
func New[H any](engine *semel.Engine, opts Options[H]) (*Inbox[H], error) {
	if opts.Name == "" || opts.Door == "" || opts.Principal == "" || opts.Window <= 0 || opts.Budget <= 0 || opts.Handle == nil {
		return nil, errors.New("inbox: Name, Door, Principal, Window, Budget or Handle is missing")
	}
	opts.Destination = cmp.Or(opts.Destination, opts.Name)
	return &Inbox[H]{engine, opts}, engine.Register(semel.Operation{
		Name: opts.Name, Window: opts.Window, Remember: opts.Remember, Evidence: opts.Evidence, Lease: cmp.Or(opts.Lease, acceptLease),
		OnAbandoned: cmp.Or(opts.OnAbandoned, semel.RetryAbandoned), OnFailure: semel.RetryFailure,
	})
}

// Item is what a sender delivers. H is the type of its head: what the door knows about it
// besides its body.
type Item[H any] struct {
	// ID is the same in all deliveries and tries of the item, and unique to it. It is empty
	// before the item is accepted.
	ID string
	// Tenant owns the item. Key names it, within Scope.
	Tenant, Scope, Key string
	// Fingerprint is the fingerprint of its content.
	Fingerprint semel.Fingerprint
	// Former are the fingerprints that earlier versions computed for it: a record with one of
	// them has the same content. Optional.
	Former []semel.Fingerprint
	// Attributes go into its record; see [AttributeApart]. Optional.
	Attributes store.Attributes
	// Order is the order key of its message; see [semel.Message]. Optional.
	Order string
	// Head and Body are the item itself. The head is stored as JSON.
	Head H
	Body []byte
	// ReceivedAt is when the accepted delivery came.
	ReceivedAt time.Time
	// Now is called while the item is accepted, instead of queueing the item for [Inbox.Work].
	// Its error ends the attempt, see [semel.Engine.Do]. If it does nothing, there is just the
	// record, which holds the first content under the key. Optional.
	Now func(ctx context.Context) error

	of      *semel.ID         // the held record, if this is the parked copy of its item; see held.go
	content semel.Fingerprint // that of the held record
}

// AttributeApart distinguishes items that have the same key but other content: if the recorded
// item has another value of it, or none, the two aren't a conflict. It never distinguishes an
// item without it, or one that was already parked beside a record without it, by a version that
// didn't know it.
const AttributeApart = "apart"
