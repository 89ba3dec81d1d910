package webhook

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/extract"
)

// Mode says when a sender gets its answer.
type Mode string

// The modes.
const (
	Ack  Mode = "ack"  // when its events are durable
	Sync Mode = "sync" // when they are handled
)

// AfterConflict says what happens to an event whose id came with other content before.
type AfterConflict = inbox.AfterConflict

// What may happen to it; see [inbox.ParkConflict] and [inbox.DropConflict].
const (
	ParkConflict = inbox.ParkConflict
	DropConflict = inbox.DropConflict
)

// Handler handles an event. After an error it gets the event again: with [Ack] from the
// dispatcher, until the error is a [*Refusal]; with [Sync] when the sender delivers again,
// whatever the error. With [Sync], [semel.Unknown] and the other marks of the engine apply.
type Handler func(ctx context.Context, e *Event) error

// Defaults and bounds of [Options].
const (
	// DefaultMaxBody is the longest body that the receiver reads, in bytes.
	DefaultMaxBody = 4 << 20
	// MaxEvent is the longest event that [Ack] accepts, in bytes, because the outbox has to keep it.
	MaxEvent = inbox.MaxBody
)

// Principal is the principal that accepts events. Nobody else may use it there, because its
// records decide which events are handled.
const Principal = "webhook"

// OperationPrefix begins the names of the operations that accept events, and of the
// destinations of accepted ones; the name of the receiver follows.
const OperationPrefix = "webhook."

// Options configure a [Receiver].
type Options struct {
	VerifierOptions
	// Name is the name of the receiver, by default the source's. Two receivers share no event.
	Name string
	// Tenant owns the events.
	Tenant string
	// Mode defaults to [Ack].
	Mode Mode
	// Handle handles an event. Required.
	Handle Handler
	// Payments decides what events mean to their payments, see [Source].Payment: it refuses an
	// event that can't happen any more, and lets one that comes too early wait. Optional.
	Payments *Machine
	// VerifyToken is the token of the handshake. Required if the source has one.
	VerifyToken string
	// Order is a template such as "{body:data.customer}": with [Ack], events that share its
	// value are handled one after the other, in the order of acceptance. Others have no order.
	Order string
	// Attributes are kept with an event's record, by name, so that people can find it: each is
	// json:/POINTER or form:FIELD of the event, or header:NAME. They come before the source's.
	Attributes map[string]string
	// OnAbandoned says what happens to an event, with [Sync], if a crash cuts its handler off.
	// Defaults to [semel.HoldAbandoned]; with [Ack] an event is always handled again.
	OnAbandoned semel.AfterAbandon
	// OnConflict says what happens to an event whose id came with other content before. Defaults
	// to [ParkConflict]: the event becomes a message to [Receiver.Destination], parked from the
	// start, in a record of its own; to replay it you need a dispatcher, even with [Sync].
	OnConflict AfterConflict
	// Lease is how long an event waits for its handler after a crash, with [Sync]; then
	// OnAbandoned decides. Defaults to [semel.DefaultLease].
	Lease time.Duration
	// Window is how long an event is recognised. Defaults to [Source.Window]; at least the
	// source's horizon. Remember is as in [semel.Operation].
	Window, Remember time.Duration
	// Budget is how long a sender waits before it gets 503; its next delivery finds the
	// outcome. Defaults to four fifths of the source's patience.
	Budget time.Duration
	// MaxBody defaults to [DefaultMaxBody], in bytes.
	MaxBody int64
	// Evidence is how much goes to the evidence log; by default [semel.EvidenceNone]. With
	// [semel.EvidenceDecisions] the log has every delivery, and both digests of a conflict.
	Evidence semel.EvidenceLevel
}

// Name marks the records of events; see [semel.Call].Door.
const Name = "webhook"

// Receiver receives the webhooks of one source. It has no state of its own: any number of them,
// on any number of nodes, may serve one store. Its methods may be called concurrently.
//
// The engine's Events get each refused delivery in Answered, with a [*Refusal] as its Err, and
// each event of the others; a delivery without events comes once, with another Err.
type Receiver struct {
	*Verifier
	engine *semel.Engine
	inbox  *inbox.Inbox[head]
	opts   Options
	order  template // nil: in any order
	names  *extract.Names
}

func (opts Options) withDefaults() Options {
	s := opts.Source
	if s == nil {
		return opts
	}
	opts.Name = cmp.Or(opts.Name, s.Name)
	opts.Mode = cmp.Or(opts.Mode, Ack)
	opts.OnAbandoned = cmp.Or(opts.OnAbandoned, semel.HoldAbandoned)
	opts.OnConflict = cmp.Or(opts.OnConflict, ParkConflict)
	opts.Lease = cmp.Or(opts.Lease, semel.DefaultLease)
	opts.Window = cmp.Or(opts.Window, s.Window())
	opts.Budget = cmp.Or(opts.Budget, time.Duration(s.Patience)*4/5)
	opts.MaxBody = cmp.Or(opts.MaxBody, DefaultMaxBody)
	opts.Evidence = cmp.Or(opts.Evidence, semel.EvidenceNone)
	return opts
}

// Validate reports all problems with the options, without secrets.
func (opts Options) Validate() error {
	_, err := NewVerifier(opts.VerifierOptions)
	s := opts.Source
	if s == nil {
		return err
	}
	opts = opts.withDefaults()
	errs := faults{err}
	errs.need(sourceName.MatchString(opts.Name), "Name %q is not small letters, digits and -", opts.Name)
	errs.need(opts.Mode == Ack || opts.Mode == Sync, "Mode %q is neither ack nor sync", opts.Mode)
	errs.need(opts.OnConflict == ParkConflict || opts.OnConflict == DropConflict, "OnConflict %q is neither park nor drop", opts.OnConflict)
	errs.need(opts.Handle != nil, "Handle is missing")
	errs.need(s.Handshake.Token == "" || len(opts.VerifyToken) >= minSecret, "VerifyToken is missing or has fewer than %d bytes", minSecret)
	errs.need(opts.Window >= time.Duration(s.Horizon), "Window %v is shorter than %s repeats its deliveries: %v", opts.Window, s.Name, s.Horizon)
	if opts.Payments != nil {
		errs.need(len(s.Payment.Events) > 0, "Payments needs a source that says which events are about payments, and %s doesn't", s.Name)
		for _, e := range s.Payment.Events {
			errs.need(opts.Payments.knows(e.Is), "the machine %s has no transition %q, which %s names", opts.Payments.Name, e.Is, s.Name)
		}
	}
	_, err = parseTemplate(opts.Order)
	errs.need(err == nil, "Order: %v", err)
	_, err = s.names(opts.Attributes)
	errs.need(err == nil, "%w", err)
	errs.need(opts.Order == "" || opts.Mode == Ack, "Order needs the mode ack: with sync an event is handled while its sender waits")
	errs.need(opts.Budget > 0, "Budget is negative")
	errs.need(opts.MaxBody > 0, "MaxBody is negative")
	return errors.Join(errs...)
}

// New makes a receiver and registers its operation. The error reports all problems with
// the options. With [Ack] you need a dispatcher that passes the messages of
// [Receiver.Destination] to [Receiver.Work].
func New(engine *semel.Engine, opts Options) (*Receiver, error) {
	if engine == nil {
		return nil, errors.New("webhook: an engine is missing")
	}
	opts = opts.withDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	v, _ := NewVerifier(opts.VerifierOptions) // all of this was checked
	v.maxBody = opts.MaxBody
	r := &Receiver{Verifier: v, engine: engine, opts: opts}
	r.order, _ = parseTemplate(opts.Order)
	r.names, _ = opts.Source.names(opts.Attributes)
	in := inbox.Options[head]{
		Name: r.Destination(), Door: Name, Principal: Principal, Window: opts.Window, Remember: opts.Remember, Budget: opts.Budget,
		Evidence: opts.Evidence, OnConflict: opts.OnConflict, Handle: r.handle,
	}
	if opts.Mode == Sync { // handling an event may have effects
		in.Lease, in.OnAbandoned = opts.Lease, opts.OnAbandoned
	}
	var err error
	r.inbox, err = inbox.New(engine, in)
	return r, err
}

// Destination is the name of the receiver's operation, and the outbox destination of its
// events.
func (r *Receiver) Destination() string { return OperationPrefix + r.opts.Name }

// names returns the attributes of events: the ones in a receiver's options, and then the source's.
func (s *Source) names(configured map[string]string) (*extract.Names, error) {
	var usual []extract.Attribute
	for _, a := range s.Attributes {
		usual = append(usual, extract.Attribute(a))
	}
	return extract.NewNames(Name, configured, usual...)
}
