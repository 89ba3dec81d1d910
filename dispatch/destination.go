package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/semelhq/semel"
)

// Delivery is one try to deliver one message.
type Delivery struct {
	// Message is the message to deliver. Don't change it.
	Message *semel.Message
	// Call is the identity of the call that sent it.
	Call semel.ID
	// Try counts the tries since the message was created or last replayed, from 1. A try that
	// a crash interrupted doesn't count.
	Try int
	// Header is sent with a message by [HTTP], which sets its own headers afterwards. A
	// dispatcher leaves it empty: it is for a Sender in front of one by HTTP.
	Header http.Header
}

// A Sender delivers messages to one receiver. Deliver returns nil if the receiver has
// accepted the message, and an error marked by [Park] if it never will. After any other
// error the message is sent again, under the same id. Deliver is called concurrently,
// and must return when ctx is done.
type Sender interface {
	// Deliver makes one try.
	Deliver(ctx context.Context, d Delivery) error
}

// SenderFunc is a function as a [Sender].
type SenderFunc func(ctx context.Context, d Delivery) error

// Deliver calls f.
func (f SenderFunc) Deliver(ctx context.Context, d Delivery) error { return f(ctx, d) }

// Destination is a receiver and the policy for its deliveries. The zero value of every
// field but Sender is the documented default.
type Destination struct {
	// Sender delivers to it. Required; see [HTTP] for webhooks.
	Sender Sender
	// Allow says whether a call may send to it. Messages of other calls are parked as
	// not_allowed. Nil allows all, which is fine if only your own handlers send.
	Allow func(call semel.ID) bool
	// Timeout bounds one try. Defaults to 15 seconds.
	Timeout time.Duration
	// Concurrency is how many tries this dispatcher makes at one time. Defaults
	// to 8.
	Concurrency int
	// Rate bounds the tries of this dispatcher. The zero Rate doesn't.
	Rate semel.Rate
	// MinBackoff and MaxBackoff bound the pause before another try (backoff with
	// jitter): a random time up to MinBackoff, doubled with every try, and at most
	// MaxBackoff. The receiver can ask for more by [RetryAfter]. They default to 5
	// seconds and 1 hour.
	MinBackoff, MaxBackoff time.Duration
	// MaxTries is after how many tries a message is parked. Defaults to 80, which
	// take some 75 hours.
	MaxTries int
	// MaxAge is after how long a message that could not be delivered is parked.
	// Defaults to 72 hours.
	MaxAge time.Duration
	// BreakAfter consecutive failed tries open the circuit breaker: this dispatcher
	// stops for BreakFor, and then makes one try as a probe. They default to 10, and 30
	// seconds. Below zero the breaker is off.
	BreakAfter int
	BreakFor   time.Duration
	// Lease is the lease of the calls that deliver messages: if a dispatcher dies, its
	// message waits that long. Defaults to 30 seconds.
	Lease time.Duration
	// Window is how long a delivery's outcome stays in its record, in case its settlement on
	// the message's record fails. Defaults to 24 hours.
	Window time.Duration
}

// Defaults of [Destination].
const (
	DefaultTimeout     = 15 * time.Second
	DefaultConcurrency = 8
	DefaultMinBackoff  = 5 * time.Second
	DefaultMaxBackoff  = time.Hour
	DefaultMaxTries    = 80
	DefaultMaxAge      = 72 * time.Hour
	DefaultBreakAfter  = 10
	DefaultBreakFor    = 30 * time.Second
)

// maxRetryAfter bounds what a receiver can ask for by Retry-After.
const maxRetryAfter = 24 * time.Hour

func (t Destination) withDefaults() Destination {
	t.Timeout = cmp.Or(t.Timeout, DefaultTimeout)
	t.Concurrency = cmp.Or(t.Concurrency, DefaultConcurrency)
	t.MinBackoff = cmp.Or(t.MinBackoff, DefaultMinBackoff)
	t.MaxBackoff = max(cmp.Or(t.MaxBackoff, DefaultMaxBackoff), t.MinBackoff)
	t.MaxTries = cmp.Or(t.MaxTries, DefaultMaxTries)
	t.MaxAge = cmp.Or(t.MaxAge, DefaultMaxAge)
	t.BreakAfter = cmp.Or(t.BreakAfter, DefaultBreakAfter)
	t.BreakFor = cmp.Or(t.BreakFor, DefaultBreakFor)
	return t
}

func (t *Destination) validate(name string) error {
	var errs []error
	bad := func(what string) { errs = append(errs, fmt.Errorf("dispatch: destination %q: %s", name, what)) }
	if t.Sender == nil {
		bad("Sender is missing")
	}
	if t.Timeout < 0 || t.MinBackoff < 0 || t.MaxBackoff < 0 || t.MaxAge < 0 || t.BreakFor < 0 {
		bad("Timeout, MinBackoff, MaxBackoff, MaxAge and BreakFor may not be negative")
	}
	if t.Concurrency < 0 || t.MaxTries < 0 {
		bad("Concurrency and MaxTries may not be negative")
	}
	if r := t.Rate; r.PerSecond < 0 || math.IsNaN(r.PerSecond) || math.IsInf(r.PerSecond, 0) || r.Burst < 0 || (r.PerSecond == 0) != (r.Burst == 0) {
		bad("Rate needs PerSecond and Burst above zero, or neither")
	}
	return errors.Join(errs...)
}

// backoff is the pause after a number of failed tries: exponential with full jitter, so
// that messages that failed together aren't all retried together.
func (t *Destination) backoff(tries int) time.Duration {
	limit := t.MaxBackoff
	if shift := tries - 1; shift < 32 && t.MinBackoff<<shift>>shift == t.MinBackoff {
		limit = min(limit, t.MinBackoff<<shift)
	}
	return rand.N(limit + 1)
}

// verdict is a sender's error marked by Park or RetryAfter.
type verdict struct {
	code  string        // of a message that is parked
	after time.Duration // that the receiver asked for
	err   error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// Park marks err as a refusal for good: the message is parked until somebody
// replays or discards it. The message holds the code and the text.
func Park(code string, err error) error { return &verdict{code: cmp.Or(code, "refused"), err: err} }

// RetryAfter marks err as a failure after which the receiver asks for a pause of d, at
// most 24 hours.
func RetryAfter(d time.Duration, err error) error {
	return &verdict{after: min(max(d, 0), maxRetryAfter), err: err}
}

// limiter spaces the tries.
func (t *Destination) limiter() *rate.Limiter {
	if t.Rate.Burst == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(t.Rate.PerSecond), t.Rate.Burst)
}
