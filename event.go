package semel

import (
	"context"
	"log/slog"
	"time"

	"github.com/semelhq/semel/store"
)

// Events lets you observe an engine and the doors in front of it, for logs, metrics and
// live views. Nil functions are skipped. The engine and the doors call the functions
// synchronously, from many goroutines at once, so they should return quickly. They can't
// change anything.
//
// Each function gets an [Event] with the members that its comment names.
type Events struct {
	// Arrived: a door begins to answer a request that delivers a call, or one item of such a
	// request. Door, Header. It returns ctx, or a context derived from it, for the rest of the
	// delivery, including its handler. Start a span here; Answered gets the context back.
	Arrived func(ctx context.Context, e Event) context.Context
	// Trace is the W3C trace context (traceparent) of the span in a context; empty if there
	// is none. If it is sampled, the record of an attempt that begins there keeps it as
	// [store.AttributeTrace], and doors send it to upstreams.
	Trace func(ctx context.Context) string
	// Answered: a door has answered a request that delivers a call, or one item of such a
	// request. Context, Door, Header, Trace, Took; Code, if the caller got a refusal and no
	// outcome; Status, if there is one of HTTP; Decision, ID, Attempt, Limit and Executed, if
	// the engine has made a decision; of ID only the Operation, if the door alone has refused
	// and knows it; Request, if the protocol has a name for requests; Err, if the door knows
	// more about the reason than it told the caller; Attrs, if it has something to log;
	// FailedOpen and Parked, if that happened. The engine doesn't see requests that a door
	// refuses by itself, or that a limit in front of the doors refuses before anybody looked
	// whether they deliver a call.
	Answered func(Event)
	// Troubled: a door met an error that no caller gets, such as an outcome that isn't
	// recorded yet, an upstream that failed, or an answer that came too late. Door, Err,
	// Attrs; of the latter also the Operation in ID, and the Status that came too late.
	Troubled func(Event)
	// Decided: a delivery got its decision. ID, Door, Decision, State, Attempt, Fence, At,
	// Added; RetryAfter, Limit, Waited and Presented where there are any.
	Decided func(Event)
	// Ended: an attempt ended, or a sweep or delivery declared it abandoned or held. ID,
	// Disposition or Held, HeldReason, Door, Attempt, Fence, Took, By, Who, Reason, At; Added,
	// if its holder has ended it.
	Ended func(Event)
	// LeaseLost: a handler's context was cancelled, because somebody else changed the
	// record or the store could not be reached before the lease ended: Err says which.
	// ID, Attempt, Fence.
	LeaseLost func(Event)
	// StoreFailed: a call to the store returned Err, so its result was unknown for the
	// moment. Call, Try, and ID where the call is about one record. It isn't called for a read
	// after its caller hung up.
	StoreFailed func(Event)
	// Purged: a batch of expired records was deleted. Count; and ID, By, Who and Reason
	// where an operator purged one record.
	Purged func(Event)
	// Erased: records were purged with [Removal].EraseEvidence, here or by another engine on the
	// store, so that whatever names them must go. At, Erased. [Engine.Run] learns of it within
	// some seconds, and calls Erased more than once. After a start it reports the erasures of
	// the last 31 days.
	Erased func(Event)
	// Swept: a sweep by [Engine.Run] has ended. Swept; and Err, if something kept it from
	// some or all due records, which the next sweep tries again.
	Swept func(Event)
	// Unswept: this engine has run calls for a minute (Took), and nothing has swept
	// here. It is called once. Without [Engine.Run], here or in another process on the
	// same store, expired records are never removed, and abandoned calls wait for their
	// next delivery. Nil: the engine warns by [slog.Default]. Where another process
	// sweeps, give a function that does nothing.
	Unswept func(Event)
	// Reconciled: the engine asked a reconciler about a held record. ID, Took; and Err, if
	// there is no answer or it could not be recorded: the record stays held, and the engine
	// asks again.
	Reconciled func(Event)
	// Compensated: a sweep has resumed an unfinished compensation. ID, Took; and Err, the
	// error of the compensating call: if that call hasn't ended, the engine resumes it
	// again.
	Compensated func(Event)
	// ReleaseDropped: the store didn't confirm a claim, the caller got [CodeStoreUnavailable],
	// and the engine won't release the claim, because too many are waiting for that. If it was
	// written, its call counts as abandoned when the lease ends. ID.
	ReleaseDropped func(Event)
}

// Event is what a function of [Events] gets. Members that the function's comment doesn't
// name are zero.
type Event struct {
	ID      ID
	Attempt int
	Fence   int64
	// At is when it happened, by the store's clock.
	At time.Time
	// Err is why something failed.
	Err error

	// Door names the door that a delivery came through ([Call].Door), or that reports the
	// event.
	Door string
	// Code is why a door has refused a request: one of the engine's codes or of the door's.
	Code Code
	// Attrs are the door's attributes for a log line, without keys, principals and payloads.
	// [slog.LevelKey] and [slog.MessageKey] set the level and the message of the line.
	Attrs []slog.Attr

	// Context is what Arrived has returned. It may have ended.
	Context context.Context
	// Header has the headers of the request that brought a delivery, credentials included:
	// an http.Header. Nil if the protocol has none. Don't change it.
	Header map[string][]string
	// Trace is the trace context of a delivery. Executed is that of the attempt that the
	// answer is about. Either is empty without a trace.
	Trace, Executed string
	// Request is what the caller calls this request, such as its id in JSON-RPC.
	Request string
	// Status is that of the answer over HTTP.
	Status int
	// FailedOpen says that the request ran without a guard, because the store didn't answer
	// and its route gives the guarantee up then. It may have happened before.
	FailedOpen bool
	// Parked says that the delivery was set aside for somebody to replay or discard, because
	// of Code.
	Parked bool

	// Decision is what a delivery got, about a record in State.
	Decision Decision
	State    State
	// RetryAfter is the delay that the caller got; zero if none.
	RetryAfter time.Duration
	// Limit is the limit that throttled the delivery.
	Limit Limit
	// Waited is how long the delivery waited for another's outcome.
	Waited time.Duration
	// Presented describes the payload of a delivery that got [Conflict]; nil for any other.
	Presented *Presented

	// Added is the time that the engine added to a delivery: until the decision, and for an
	// ended attempt also the time until its end was durable. It includes neither the work
	// itself nor Waited. If the attempt began in another process, it covers only the end.
	Added time.Duration

	// Disposition says how an attempt ended. It is empty when the record is Held, and
	// HeldReason says why.
	Disposition store.Disposition
	Held        bool
	HeldReason  string
	// Took is the time from claim to end by the store's clock, from the question to a
	// reconciler until its answer was dealt with, how long a compensation ran, or how long
	// a door took to answer.
	Took time.Duration
	// By is "holder", "reaper", "reconciler" or "operator".
	By string
	// Who is the operator's name, or whom the reconciler asked; empty if unknown.
	Who string
	// Reason is the one that the operator gave.
	Reason string

	// Call is the method of the store: "apply", "get", "now", "due" or "purge".
	Call string
	// Try counts the calls of one write, from 1.
	Try int
	// Count is how many records were purged.
	Count int
	// Erased reports whether to erase data about an identity that dates from the time at, or
	// before it, by the store's clock. Call it at any time.
	Erased func(id ID, at time.Time) bool
	// Swept is what a sweep did.
	Swept Swept
}

// Presented describes a delivery that came with another payload than its call's.
type Presented struct {
	// Principal is who sent it.
	Principal string
	// Fingerprint is that of its payload.
	Fingerprint Fingerprint
	// Payload is [Call].Payload, if Operation.KeepPayload and Operation.MaxResult allow
	// storing it; nil otherwise. It belongs to the door: copy what you keep.
	Payload []byte
	// Charge counts bytes that you keep of it against the quotas of who sent it. If it
	// reports false, they are over a quota, and you should keep nothing. Nil if no quota is
	// set. Call it at any time, once for what you keep.
	Charge func(bytes int64) bool
}
