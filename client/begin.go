package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Begun is what a delivery got from [Client.Begin].
type Begun struct {
	Decision semel.Decision
	// Record is what is stored about the call. It is whole for Execute and
	// Replay; otherwise it has what the service tells: the identity, and why it
	// is held.
	Record *semel.Record
	// RetryAfter is when asking again makes sense, for InFlight, Held and
	// Throttled.
	RetryAfter time.Duration
	// Challenge is what confirms the call, where the error is
	// [semel.CodeConfirmationRequired].
	Challenge *semel.Challenge
	// Execution names the right to execute, for Execute only.
	Execution string
	// Lease is how long the holder may be silent.
	Lease time.Duration
	// Since is a moment before the lease began, by the clock of this process.
	Since time.Time
}

// holderName is what people see of this process.
var holderName = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.100s-%d", host, os.Getpid())
})

// maxHolder bounds what a holder's name says beside being another each time.
const maxHolder = 200

// newHolder names the holder of one delivery. It is never used again: the service
// gives the same right again to whoever names its holder.
func newHolder(call *semel.Call) string {
	name := call.Holder
	if name == "" {
		name = holderName()
	}
	name = url.QueryEscape(name)
	return name[:min(len(name), maxHolder)] + "/" + rand.Text()
}

// Begin decides what a delivery gets, as [semel.Engine.Begin]. For Execute the
// caller renews the lease, does the work and ends the execution, all by the name
// that it gets; [Client.Do] does all that by itself.
//
// An error means that nothing may be executed. Where the answer was lost, the call
// may have been begun, and then it is settled by policy when its lease ends.
func (c *Client) Begin(ctx context.Context, call semel.Call) (Begun, error) {
	q := &request{
		method: http.MethodPost, url: c.base + "/v1/operations/" + url.PathEscape(call.Operation) + "/executions",
		header: http.Header{holderHeader: {newHolder(&call)}},
		body:   beginningOf(&call), wait: max(call.Wait, c.opts.MaxWait), repeatable: true,
	}
	if call.Operation == "" {
		return Begun{}, &semel.Error{Code: semel.CodeUnknownOperation, Message: "the call names no operation"}
	}
	if call.Wait > 0 {
		q.header.Set("Prefer", "wait="+strconv.FormatInt(int64((call.Wait+time.Second-1)/time.Second), 10))
	}
	since := time.Now()
	r, err := c.send(ctx, q, nil)
	if err != nil {
		return Begun{}, lostAnswer(err, semel.CodeStoreUnavailable)
	}
	b, err := c.begun(&call, r, since)
	if err != nil || b.Decision != semel.Execute {
		return b, err
	}
	return b, c.accept(ctx, &call, &b)
}

func beginningOf(call *semel.Call) *beginning {
	return &beginning{Key: call.Key, PayloadHash: call.Fingerprint, FirstSent: call.FirstSent, Attributes: call.Attributes, Confirm: call.Confirm, StepUp: call.StepUp}
}

// decisions are the refusals that an engine gives as decisions.
var decisions = map[semel.Code]semel.Decision{
	semel.CodeConflict: semel.Conflict, semel.CodeInFlight: semel.InFlight, semel.CodeHeld: semel.Held,
	semel.CodeExpired: semel.Expired, semel.CodeOtherDoor: semel.OtherDoor, semel.CodeOtherCaller: semel.OtherCaller, semel.CodeThrottled: semel.Throttled,
}

// begun reads the answer to a beginning.
func (c *Client) begun(call *semel.Call, r *reply, since time.Time) (Begun, error) {
	if p := r.problem; p != nil {
		d, ok := decisions[p.Code]
		if !ok {
			return Begun{Challenge: p.Challenge}, p.err(r.retry)
		}
		id, err := semel.DecodeID(p.Record)
		if err != nil {
			id = semel.ID{Tenant: call.Tenant, Principal: call.Principal, Operation: call.Operation, Key: call.Key}
		}
		rec := &semel.Record{ID: id}
		switch d {
		case semel.Held:
			rec.State, rec.Held = semel.Processing, p.Detail
		case semel.InFlight:
			rec.State = semel.Processing
		}
		return Begun{Decision: d, Record: rec, RetryAfter: r.retry}, nil
	}
	v, err := decode[begun](r)
	if err != nil {
		return Begun{}, lostAnswer(err, semel.CodeStoreUnavailable)
	}
	b := Begun{Decision: v.Decision, Execution: v.Execution, Lease: time.Duration(v.LeaseMS) * time.Millisecond, Since: since}
	if b.Record, err = v.Record.value(); err != nil {
		return Begun{}, invalidAnswer(r, err.Error(), semel.CodeStoreUnavailable)
	}
	id := b.Record.ID
	switch {
	case id.Operation != call.Operation || id.Key != call.Key:
		return Begun{}, invalidAnswer(r, "it is about another call", semel.CodeStoreUnavailable)
	case b.Decision == semel.Execute && (b.Execution == "" || b.Lease <= 0):
		return Begun{}, invalidAnswer(r, "it has no execution or no lease", semel.CodeStoreUnavailable)
	case b.Decision != semel.Execute && b.Decision != semel.Replay:
		return Begun{}, invalidAnswer(r, "there is no such decision", semel.CodeStoreUnavailable)
	case b.Decision == semel.Replay && !sameCaller(call, b.Record):
		return Begun{}, errOtherCaller()
	}
	return b, nil
}

func invalidAnswer(r *reply, reason string, code semel.Code) error {
	return lostAnswer(&AnswerError{r.status, reason}, code)
}

// accept makes sure of a right that was given.
func (c *Client) accept(ctx context.Context, call *semel.Call, b *Begun) error {
	if !sameCaller(call, b.Record) {
		// Nothing was executed: that is proof. If it is not recorded, the lease
		// ends and policy settles it.
		_, _ = c.Abort(context.WithoutCancel(ctx), b.Execution, semel.Failure{Message: "the caller's identity is not the one that the call names"})
		b.Execution = ""
		return errOtherCaller()
	}
	if time.Since(b.Since) <= b.Lease/3 {
		return nil
	}
	// Since when the lease runs is not known well: the delivery has waited, or
	// this answers a repeated request.
	since := time.Now()
	d, err := c.Renew(ctx, b.Execution)
	if err != nil {
		return err
	}
	b.Lease, b.Since = d, since
	return nil
}

// sameCaller reports whether the service knows the caller as whom the call names.
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
