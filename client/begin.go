package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Begun is the result of [Client.Begin] for a delivery.
type Begun struct {
	Decision semel.Decision
	// Record is the call's record: complete for Execute and Replay, otherwise only its identity
	// and why it is held.
	Record *semel.Record
	// RetryAfter is when it makes sense to ask again, for InFlight, Held and Throttled.
	RetryAfter time.Duration
	// Limit is the limit that throttled the call, for Throttled.
	Limit semel.Limit
	// Challenge says how to confirm the call, if the error is
	// [semel.CodeConfirmationRequired].
	Challenge *semel.Challenge
	// Execution names the right to execute, for Execute only.
	Execution string
	// Lease is how long the holder may go without renewing.
	Lease time.Duration
	// Since is a moment before the lease began, by the clock of this process.
	Since time.Time
	// OnAbandoned says what happens to the call if its holder goes away or calls
	// [Client.Abandon], for Execute only.
	OnAbandoned semel.AfterAbandon
	// Financial says that the operation moves money, so an unmarked error is recorded as a failure.
	// It is set for Execute only.
	Financial bool
}

// holderName names this process to people.
var holderName = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.100s-%d", host, os.Getpid())
})

// maxHolder bounds the readable part of a holder's name, in bytes.
const maxHolder = 200

// newHolder names the holder of one delivery. Never use a name again: the service gives anybody
// with the holder's name the same right again.
func newHolder(call *semel.Call) string {
	name := call.Holder
	if name == "" {
		name = holderName()
	}
	name = url.QueryEscape(name)
	return name[:min(len(name), maxHolder)] + "/" + rand.Text()
}

// Begin decides what a delivery gets, like [semel.Engine.Begin]. For Execute you renew the
// lease, do the work and end the execution, using the name that you get. [Client.Do] does all
// that for you.
//
// After an error, execute nothing. If the answer was lost, the call may have begun; it is then
// settled by policy when its lease ends.
func (c *Client) Begin(ctx context.Context, call semel.Call) (Begun, error) {
	q := &request{
		method: http.MethodPost, to: c.calls, path: "/v1/operations/" + url.PathEscape(call.Operation) + "/executions",
		header: http.Header{holderHeader: {newHolder(&call)}},
		body:   beginningOf(&call), wait: max(call.Wait, c.opts.MaxWait), repeatable: true, lost: lostBeginning,
	}
	if call.Operation == "" {
		return Begun{}, &semel.Error{Code: semel.CodeUnknownOperation, Message: "the call names no operation"}
	}
	if call.Wait > 0 {
		q.header.Set("Prefer", "wait="+strconv.FormatInt(int64((call.Wait+time.Second-1)/time.Second), 10))
	}
	since := time.Now()
	r, err := c.send(ctx, q)
	if err != nil {
		return Begun{}, lostAnswer(err, q.lost)
	}
	b, err := c.begun(&call, r, since)
	if err != nil || b.Decision != semel.Execute {
		return b, err
	}
	return b, c.accept(ctx, &call, &b)
}

// lostBeginning is the code for a beginning without a usable answer: whatever the service did,
// nothing was executed.
const lostBeginning = semel.CodeStoreUnavailable

func beginningOf(call *semel.Call) *wire.Beginning {
	return &wire.Beginning{Key: call.Key, PayloadHash: call.Fingerprint.String(), FirstSent: call.FirstSent, Sequence: call.Sequence, Attributes: call.Attributes, Confirm: call.Confirm, StepUp: call.StepUp}
}

// decisionOf returns the decision that refuses a delivery with the code. It reports false for a
// code that isn't a decision.
func decisionOf(code semel.Code) (semel.Decision, bool) {
	d := semel.Decision(code)
	_, refuses := d.Code()
	return d, refuses && slices.Contains(semel.Decisions(), d)
}

// begun reads the answer to a beginning.
func (c *Client) begun(call *semel.Call, r *reply, since time.Time) (Begun, error) {
	if p := r.problem; p != nil {
		d, ok := decisionOf(p.Code)
		if !ok {
			return Begun{Challenge: (*semel.Challenge)(p.Challenge)}, r.refusal()
		}
		id, err := store.DecodeID(p.Record)
		if err != nil {
			id = semel.ID{Tenant: call.Tenant, Principal: call.Principal, Operation: call.Operation, Key: call.Key}
		}
		rec := &semel.Record{ID: id, Sequence: cmp.Or(p.LastSequence, p.ExpectedSequence)}
		switch d {
		case semel.Held:
			rec.State, rec.Held, rec.HeldReason = semel.Processing, true, p.Detail
		case semel.InFlight:
			rec.State = semel.Processing
		}
		return Begun{Decision: d, Record: rec, RetryAfter: r.retry, Limit: p.Limit}, nil
	}
	v, err := decode[wire.Begun](r)
	if err != nil {
		return Begun{}, err
	}
	b := Begun{Decision: v.Decision, Execution: v.Execution, Lease: time.Duration(v.LeaseMS) * time.Millisecond, Since: since, OnAbandoned: v.OnAbandoned, Financial: v.Financial}
	if b.Record, err = v.Record.Value(); err != nil {
		return Begun{}, r.invalid(err.Error())
	}
	id, asked := b.Record.ID, semel.ID{Operation: call.Operation, Key: call.Key}
	if call.Sequence != 0 {
		asked = asked.Numbered(call.Sequence)
	}
	switch {
	case id.Operation != asked.Operation || id.Key != asked.Key:
		return Begun{}, r.invalid("it is about another call")
	case b.Decision == semel.Execute && (b.Execution == "" || b.Lease <= 0):
		return Begun{}, r.invalid("it has no execution or no lease")
	case b.Decision != semel.Execute && b.Decision != semel.Replay:
		return Begun{}, r.invalid("its decision is not known")
	case b.Decision == semel.Replay && !sameCaller(call, b.Record):
		return Begun{}, errOtherCaller()
	}
	return b, nil
}

// accept makes sure that the client may use a right it got.
func (c *Client) accept(ctx context.Context, call *semel.Call, b *Begun) error {
	if !sameCaller(call, b.Record) {
		c.giveBack(ctx, b, "the caller's identity is not the one that the call names")
		return errOtherCaller()
	}
	// We can't tell when the lease began: the delivery may have waited, or this answers a
	// repeated request. So renew it until it certainly has time left.
	for n := 0; time.Since(b.Since) > b.Lease/3; n++ {
		if n == c.opts.Tries {
			c.giveBack(ctx, b, "the service was too slow for the lease")
			return &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the service takes longer than a third of the lease for each answer"}
		}
		since := time.Now()
		d, err := c.Renew(ctx, b.Execution)
		if err != nil {
			c.giveBack(ctx, b, "the lease could not be renewed before the work")
			return err
		}
		b.Lease, b.Since = d, since
	}
	return nil
}

// giveBack aborts an execution that did nothing, which proves that nothing happened. If this
// can't be recorded, the lease ends and policy settles the call.
func (c *Client) giveBack(ctx context.Context, b *Begun, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Timeout)
	defer cancel()
	_, _ = c.Abort(ctx, b.Execution, store.Failure{Message: reason})
	b.Execution = ""
}

// sameCaller reports whether the service identifies the caller as the one in the call.
// Otherwise calls that the program keeps apart would share their keys.
func sameCaller(call *semel.Call, rec *semel.Record) bool {
	if call.Tenant != "" && call.Tenant != rec.ID.Tenant {
		return false
	}
	who := cmp.Or(rec.ID.Principal, rec.BoundTo)
	return call.Principal == "" || who == "" || call.Principal == who
}

func errOtherCaller() error {
	return &semel.Error{Code: semel.CodeInvalidCall, Message: "the service knows this caller as another tenant or principal than the call names: leave them empty, or use a client with their credential"}
}
