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
// Each function gets a struct of its own. Its fields are set, except where a comment says
// when one is zero, empty, nil or false.
type Events struct {
	// Arrived: a door begins to answer a request that delivers a call, or one item of such a
	// request. It returns ctx, or a context derived from it, for the rest of the delivery,
	// including its handler. Start a span here; Answered gets the context back.
	Arrived func(ctx context.Context, e Arrived) context.Context
	// Trace is the W3C trace context (traceparent) of the span in a context; empty if there
	// is none. If it is sampled, the record of an attempt that begins there keeps it as
	// [store.AttributeTrace], and doors send it to upstreams.
	Trace func(ctx context.Context) string
	// Answered: a door has answered a request that delivers a call, or one item of such a
	// request. That includes requests that the engine doesn't see, because the door refuses
	// them by itself, or because a limit in front of the doors refuses them before anybody
	// checked whether they deliver a call.
	Answered func(Delivered)
	// Troubled: a door met an error that no caller gets, such as an outcome that isn't
	// recorded yet, an upstream that failed, or an answer that came too late.
	Troubled func(Troubled)
	// Decided: a delivery got its decision.
	Decided func(Decided)
	// Ended: an attempt ended, or a sweep or delivery declared it abandoned or held.
	Ended func(Ended)
	// LeaseLost: a handler's context was cancelled, because somebody else changed the
	// record or the store could not be reached before the lease ended.
	LeaseLost func(LeaseLost)
	// StoreFailed: a call to the store returned an error, so its result was unknown for the
	// moment. It isn't called for a read after its caller hung up.
	StoreFailed func(StoreFailed)
	// Purged: a batch of expired records was deleted, or an operator purged one record.
	Purged func(Purged)
	// Erased: records were purged with [Removal].EraseEvidence, here or by another engine on
	// the store, so you must delete whatever names them. [Engine.Run] learns of it within some
	// seconds, and calls Erased more than once. After a start it reports the erasures of the
	// last 31 days.
	Erased func(Erased)
	// Swept: a sweep by [Engine.Run] has ended.
	Swept func(SweepEnded)
	// Unswept: this engine has run calls for a minute, and nothing has swept here. It is
	// called once. Without [Engine.Run], here or in another process on the same store,
	// expired records are never removed, and abandoned calls wait for their next delivery.
	// Nil: the engine warns by [slog.Default]. Where another process sweeps, give a function
	// that does nothing.
	Unswept func(Unswept)
	// Reconciled: the engine asked a reconciler about a held record.
	Reconciled func(Reconciled)
	// Compensated: a sweep has resumed an unfinished compensation.
	Compensated func(Compensated)
	// ReleaseDropped: the store didn't confirm a claim, the caller got [CodeStoreUnavailable],
	// and the engine won't release the claim, because too many are waiting for that. If it was
	// written, its call counts as abandoned when the lease ends.
	ReleaseDropped func(ReleaseDropped)
}

// Arrived is a request that a door begins to answer.
type Arrived struct {
	Door string // as [Call].Door
	// Header has the headers of the request, credentials included: an http.Header. Don't
	// change it. Nil if the protocol has none.
	Header map[string][]string
}

// Delivered is a delivery that a door has answered.
type Delivered struct {
	// Context is what Arrived has returned. It may have ended.
	Context context.Context
	Door    string              // as [Call].Door
	Header  map[string][]string // as in [Arrived]; nil if the protocol has none
	Trace   string              // the trace context; empty without a trace
	Took    time.Duration       // how long the door took to answer

	// ID is the identity of the record. If the engine made no decision, it is zero except for
	// the Tenant or the Operation that the door may know.
	ID       ID
	Decision Decision // empty if the engine has made none
	Attempt  int      // the record's newest; zero if there is none
	Limit    Limit    // what throttled the delivery; empty if nothing did
	// Executed is the trace context of the attempt that the answer is about; empty without a
	// trace.
	Executed string

	// Code is why the caller got no outcome: one of the engine's codes or of the door's; empty
	// if they got one.
	Code   Code
	Status int // of the answer over HTTP; zero for any other protocol
	// Err is what the door knows about the reason beyond what it told the caller; nil if there
	// is nothing more.
	Err error
	// Request is the caller's own name for this request, such as its id in JSON-RPC; empty if
	// the protocol has no name for requests.
	Request string
	// FailedOpen says that the request ran without a guard, because the store didn't answer and
	// its route is set to fail open. The call may have run before. False for any other
	// delivery.
	FailedOpen bool
	// Parked says that the delivery was set aside for somebody to replay or discard, because
	// of Code; false for any other.
	Parked bool

	Line // what the door adds to the delivery's log line; zero if nothing
}

// Troubled is an error that a door met and no caller gets.
type Troubled struct {
	Door string
	// ID is the identity of the record that the error is about, or only its Operation; zero
	// if the door doesn't know it.
	ID     ID
	Status int // of an answer that came too late; zero for any other trouble
	Err    error
	Line   // its log line; zero if the answer's log line already says it
}

// Line is what a door says in the log about an event.
type Line struct {
	// Level takes the place of the line's usual level. Nil: the usual level.
	Level slog.Leveler
	// Note is the message of a line about trouble, and an attribute of one about a delivery;
	// empty if there is nothing to say.
	Note string
	// Attrs are the door's own attributes, without keys, principals and payloads; nil if there
	// are none.
	Attrs []slog.Attr
}

// Decided is a delivery that got its decision.
type Decided struct {
	ID         ID
	Door       string // [Call].Door; empty if the program gave none
	Decision   Decision
	State      State         // of the record; zero if there is none
	Attempt    int           // the record's newest; zero if there is none
	Fence      int64         // of that attempt; zero if there is none
	RetryAfter time.Duration // the delay that the caller got; zero if none
	Limit      Limit         // what throttled the delivery; empty if nothing did
	Waited     time.Duration // for another's outcome; zero if it didn't wait
	// Added is the time that the engine added until the decision. It includes neither Waited
	// nor, in a transaction, the work itself.
	Added     time.Duration
	Presented *Presented // with [Conflict]; nil with any other decision
	At        time.Time  // by the store's clock
}

// Ended is an attempt that ended or was declared held.
type Ended struct {
	ID          ID
	Door        string // of its delivery; empty if the program gave none
	Attempt     int
	Fence       int64
	Disposition store.Disposition // how it ended; zero if it is held
	Held        bool              // false if it ended
	HeldReason  string            // empty if it isn't held
	// Took is the time from claim to end by the store's clock; zero if that clock didn't advance.
	Took time.Duration
	// Added is the time that the engine added to the delivery, until the decision and until
	// the end was durable, without the work itself and [Decided].Waited. If the attempt began
	// in another process, it covers only the end. It is zero unless the holder ended it.
	Added  time.Duration
	By     string    // "holder", "reaper", "reconciler" or "operator"
	Who    string    // the operator's name, or whom the reconciler asked; empty if unknown
	Reason string    // the operator's; empty for anybody else
	At     time.Time // by the store's clock
}

// LeaseLost is an attempt that has lost its lease, and why.
type LeaseLost struct {
	ID      ID
	Attempt int
	Fence   int64
	Err     error
}

// StoreFailed is a call to the store that returned an error.
type StoreFailed struct {
	ID   ID     // of the record; zero if the call is about several, or none
	Call string // such as "apply", "get", "now", "due" or "purge"
	Try  int    // counts the calls of one write, from 1
	Err  error
}

// Purged is one or more records that were deleted.
type Purged struct {
	Count  int
	ID     ID     // of a record that an operator purged; zero for a batch
	By     string // "operator"; empty for a batch
	Who    string // the operator's name; empty if unknown
	Reason string // the operator's; empty for a batch
}

// Erased reports that identities were erased and must not be named any more.
type Erased struct {
	At time.Time // when the newest was erased, by the store's clock
	// Includes reports whether you must erase data about an identity, if the data dates from
	// the given time or earlier, by the store's clock. Call it at any time.
	Includes func(id ID, at time.Time) bool
}

// SweepEnded is what [Engine.Sweep] returns.
type SweepEnded struct {
	Swept // zero if there was nothing to do
	// Err is why the sweep skipped some or all due records, which the next sweep tries again;
	// nil if it skipped none.
	Err error
}

// Unswept is how long the engine has run calls.
type Unswept struct{ Took time.Duration }

// Reconciled is a call of a reconciler that has ended.
type Reconciled struct {
	ID   ID
	Took time.Duration // including the handling of the answer
	// Err is why there is no answer, or why it could not be recorded: the record stays held, and
	// the engine asks again. Nil if it was recorded.
	Err error
}

// Compensated is a compensation that a sweep has resumed.
type Compensated struct {
	ID   ID
	Took time.Duration
	// Err is the error of the compensating call; nil if there is none. If that call hasn't
	// ended, the engine resumes it again.
	Err error
}

// ReleaseDropped is a claim that may stay until its lease ends.
type ReleaseDropped struct{ ID ID }

// Presented describes a delivery that came with another payload than its call's.
type Presented struct {
	// Principal is who sent it.
	Principal string
	// Fingerprint is the fingerprint of its payload.
	Fingerprint Fingerprint
	// Payload is [Call].Payload, if Operation.KeepPayload and Operation.MaxResult allow
	// storing it; nil otherwise. It belongs to the door: copy what you keep.
	Payload []byte
	// Charge counts what you keep of it, in bytes, against the quotas of its sender. If it
	// reports false, they are over a quota, and you should keep nothing. Nil if no quota is
	// set. Call it at any time, once for what you keep.
	Charge func(bytes int64) bool
}
