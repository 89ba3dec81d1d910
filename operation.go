package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// Class is how much protection a kind of call needs (IDS-VI.1).
type Class string

// The classes.
const (
	// ReadOnly (I0) calls run without deduplication. They get an attempt that
	// is not recorded.
	ReadOnly Class = "I0"
	// Strict (I1) is the default for everything that changes something
	// (IDS-VI.2).
	Strict Class = "I1"
	// Windowed (I2) is deduplicated inside a declared, bounded window only
	// (IDS-VI.4): Operation.Window must be set.
	Windowed Class = "I2"
	// Shielded (I3) has an external effect that is not idempotent by itself:
	// Operation.Shields must be set (IDS-XI.1).
	Shielded Class = "I3"
)

// Shield is a way to keep an external effect from happening twice (IDS-XI).
type Shield string

// The shields.
const (
	ShieldProviderKey Shield = "S1" // a derived idempotency key goes to the provider
	ShieldOutbox      Shield = "S2" // transactional outbox with a single dispatcher
	ShieldLedger      Shield = "S3" // effect ledger written before the provider is called
	ShieldReconcile   Shield = "S4" // reconciliation with the provider, and a compensation plan
)

// AfterFailure is what the delivery after a failed attempt gets.
type AfterFailure string

// The failure rules. Rejected attempts are always replayed, aborted ones always
// run again.
const (
	ReplayFailure AfterFailure = "replay" // the same failure; the default (CORE-INV.2)
	RetryFailure  AfterFailure = "retry"  // a new attempt under a higher fence (MAP-FLOW.4)
)

// AfterAbandon is what happens to an attempt if its holder is gone while an effect is
// possible.
type AfterAbandon string

// The abandonment rules.
const (
	HoldAbandoned  AfterAbandon = "hold"  // nobody runs it until it is settled; the default
	RetryAbandoned AfterAbandon = "retry" // the next delivery runs it again: effects may repeat
)

// AfterExpiry is what becomes of a record that has expired.
type AfterExpiry string

// The expiry rules.
const (
	DeleteExpired  AfterExpiry = "delete"  // it is deleted
	ArchiveExpired AfterExpiry = "archive" // it stays until Options.Archive has taken it (MAP-EXP.3)
)

// InFlightRule is what a duplicate gets while the first delivery runs.
type InFlightRule string

// The rules for duplicates in flight.
const (
	RefuseInFlight InFlightRule = "refuse" // in_flight at once, unless the call asks to wait; the default
	WaitInFlight   InFlightRule = "wait"   // wait up to Operation.MaxWait for the outcome
)

// Share says who shares the keys of an operation.
type Share string

// The sharing rules.
const (
	SharePrincipal Share = "principal" // each principal has its own keys; the default
	ShareTenant    Share = "tenant"    // all principals of a tenant share keys; needs Authorize
)

// Rate is a token bucket: Burst at once, refilled with PerSecond. The zero Rate
// doesn't limit. PerSecond is a million at most, and an empty bucket must be full again
// within ten years, the longest Window.
type Rate struct {
	PerSecond float64 `json:"per_second,omitempty"`
	Burst     int     `json:"burst,omitempty"`
}

// Operation declares the policy of one kind of call. The zero value of every
// field but Name is the documented default. Don't change an operation after
// you gave it to an engine.
type Operation struct {
	// Name identifies the operation, with its version if it has one, such
	// as "payments.charge" or "payments.charge@2". Up to 256 bytes.
	Name string
	// Class defaults to [Strict].
	Class Class
	// Financial says that the operation moves money. It raises the default window to 7
	// days and its floor to 24 hours (MAP-EXP.1, IDS-VIII.3), keeps records for the
	// archive (MAP-EXP.4), and keeps failures: OnFailure defaults to [ReplayFailure] at
	// every door, and a plain error of a function is a failure, see [Engine.Do].
	Financial bool

	// How long.

	// Window is how long Semel replays an outcome, counted from the moment it became terminal.
	// Defaults to 24 hours, or 7 days if Financial.
	Window time.Duration
	// Remember is how long Semel knows that the call ran, counted as Window and at least that; zero
	// is Window. After the window a duplicate gets [CodeResultNotKept] in place of the outcome, and
	// one that would have run within it still does, as the call's next attempt.
	Remember time.Duration
	// Lease is how long a silent holder keeps the right to execute. It is
	// renewed at a third of its time, so it may be much shorter than the
	// handler takes. Defaults to 30 seconds; 10 milliseconds to 30 days.
	Lease time.Duration
	// MaxWait bounds every wait for an outcome, Call.Wait included. Defaults to 30
	// seconds.
	MaxWait time.Duration

	// What duplicates get, and who may be one.

	// InFlight defaults to [RefuseInFlight].
	InFlight InFlightRule
	// Share defaults to [SharePrincipal]. [ShareTenant] needs Authorize.
	Share Share
	// Authorize is called each time before a caller gets a stored answer, with the
	// record of that answer. If it returns an error, the caller gets [CodeForbidden]
	// instead (IDS-XV.4). It is also called before a call is claimed, with the claim as
	// it would be stored: otherwise a caller that may not see the answer to a shared
	// key could give one. It isn't called for read-only calls, which leave nothing to
	// share. Optional, but required with [ShareTenant].
	Authorize func(ctx context.Context, call Call, rec Record) error
	// RefuseLate refuses a call that was first sent before the window, instead
	// of running it as a new one. It works if Call.FirstSent is set or the key is a
	// UUIDv7. With Evidence, Semel also holds a call whose record is gone although the log
	// says that its window is open, as it does for Financial operations (IDS-XV.6).
	RefuseLate bool
	// PerRecord limits duplicates of one record (IDS-XV.3), and requests for its
	// confirmation.
	PerRecord Rate
	// PerPrincipal limits duplicates by one principal (IDS-XV.3), and the principal's
	// requests for confirmation.
	PerPrincipal Rate

	// Sequenced makes all calls of one key a sequence: Call.Sequence numbers them. Each
	// number is a call of its own, with its own record, caller and window, and a number that
	// has an outcome gets it, whatever came later. A number executes if it is above all that
	// may have had an effect, one at a time: while another runs it is [InFlight], while
	// another is held it is [Held], and below one that may have had an effect it is
	// [Superseded]. The order is forgotten when the window of the number that began last
	// ends (MAP-SESS.2).
	Sequenced bool
	// Gapless lets number N execute only when N-1 has an outcome; while N-1 hasn't begun, N
	// gets [SequenceGap]. The first number is 1. Otherwise numbers may be left out.
	Gapless bool

	// What follows an attempt that did not complete.

	// OnFailure defaults to [ReplayFailure].
	OnFailure AfterFailure
	// OnAbandoned defaults to [HoldAbandoned].
	OnAbandoned AfterAbandon
	// Reconcile settles held records by asking the provider. Optional.
	Reconcile Reconciler
	// ReconcileEvery is the pause between two questions about the same held
	// record. Defaults to 1 minute.
	ReconcileEvery time.Duration

	// Effects on other systems.

	// Shields are the strategies that keep external effects from being repeated; at
	// least one for class I3.
	Shields []Shield
	// Effects names the effects that attempts of this operation may begin with
	// [Effect]. By declaring them you promise that the handler has no other effects
	// on other systems: an abandoned attempt that began none of them may then run
	// again. A name that ends in "*" stands for all names with that prefix.
	// Nil declares nothing; attempts may still use the ledger. Names that begin
	// with "semel" belong to the doors of this module and need no declaration.
	Effects []string

	// Confirmation before a call runs, and compensation after it.

	// Confirmation asks for a confirmation token before a call is executed.
	Confirmation *ConfirmationPolicy
	// Compensation names the operation that undoes this one, and Compensate does
	// it, as an attempt of that operation (IDS-XI.S4); see [Engine.Compensate].
	Compensation string
	Compensate   Compensator

	// Stored data.

	// MaxResult is the largest result that a record holds, in bytes. A larger one leaves a
	// tombstone. Defaults to 256 KiB.
	MaxResult int
	// KeepPayload stores the [Call].Payload of each new call in its record, for people who
	// look at the store. It is for payloads without secrets. A payload longer than MaxResult
	// isn't stored. Observers also get payloads that were refused as a conflict: see
	// [Presented].
	KeepPayload bool
	// OnExpiry defaults to [DeleteExpired], or to [ArchiveExpired] if Financial.
	OnExpiry AfterExpiry
	// Evidence is how much goes to the evidence log. Defaults to [EvidenceNone].
	// More needs a store with [store.EvidenceLog] and Options.Witness.
	Evidence EvidenceLevel
}

// Defaults and bounds of [Operation].
const (
	DefaultWindow          = 24 * time.Hour
	DefaultFinancialWindow = 7 * 24 * time.Hour
	DefaultLease           = 30 * time.Second
	DefaultMaxWait         = 30 * time.Second
	DefaultMaxResult       = 256 << 10
	DefaultReconcileEvery  = time.Minute
	minFinancialWindow     = 24 * time.Hour
	minLease               = 10 * time.Millisecond
	maxLease               = 30 * 24 * time.Hour
	minWindow              = time.Second
	maxWindow              = 10 * 365 * 24 * time.Hour
	maxRate                = 1_000_000 // above it, rounding a token's time to whole nanoseconds is too coarse
)

// withDefaults fills in the defaults.
func (op Operation) withDefaults() Operation {
	op.Class = cmp.Or(op.Class, Strict)
	if op.Window == 0 && op.Financial {
		op.Window = DefaultFinancialWindow
	}
	if op.OnExpiry == "" && op.Financial {
		op.OnExpiry = ArchiveExpired
	}
	op.OnExpiry = cmp.Or(op.OnExpiry, DeleteExpired)
	op.Window = cmp.Or(op.Window, DefaultWindow)
	op.Lease = cmp.Or(op.Lease, DefaultLease)
	op.OnFailure = cmp.Or(op.OnFailure, ReplayFailure)
	op.OnAbandoned = cmp.Or(op.OnAbandoned, HoldAbandoned)
	op.InFlight = cmp.Or(op.InFlight, RefuseInFlight)
	op.MaxWait = cmp.Or(op.MaxWait, DefaultMaxWait)
	op.Share = cmp.Or(op.Share, SharePrincipal)
	op.Evidence = cmp.Or(op.Evidence, EvidenceNone)
	op.MaxResult = cmp.Or(op.MaxResult, DefaultMaxResult)
	op.ReconcileEvery = cmp.Or(op.ReconcileEvery, DefaultReconcileEvery)
	return op
}

// refusal records a problem with a declaration, if broken is set.
type refusal func(broken bool, format string, args ...any)

// Validate reports everything that is wrong with the declaration at once. Each
// problem names the field and the bound.
func (op Operation) Validate() error {
	var errs []error
	refuseIf := func(broken bool, format string, args ...any) {
		if broken {
			errs = append(errs, &Error{Code: CodeInvalidOperation, Message: fmt.Sprintf("operation %q: ", op.Name) + fmt.Sprintf(format, args...)})
		}
	}
	refuseIf(op.Name == "" || len(op.Name) > store.MaxNameLen || !store.ValidText(op.Name), "Name must have 1 to %d bytes of UTF-8 without NUL", store.MaxNameLen)
	refuseIf(strings.HasPrefix(op.Name, reservedPrefix) && !strings.HasPrefix(op.Name, dispatchPrefix), "Name may not begin with %s", reservedPrefix)
	refuseIf(op.Class == Windowed && op.Window == 0, "class I2 needs a Window of its own")
	refuseIf(op.Class == Shielded && len(op.Shields) == 0, "class I3 needs at least one of Shields")
	op = op.withDefaults()
	oneOf(refuseIf, "Class", op.Class, ReadOnly, Strict, Windowed, Shielded)
	oneOf(refuseIf, "OnFailure", op.OnFailure, ReplayFailure, RetryFailure)
	oneOf(refuseIf, "OnAbandoned", op.OnAbandoned, HoldAbandoned, RetryAbandoned)
	oneOf(refuseIf, "OnExpiry", op.OnExpiry, DeleteExpired, ArchiveExpired)
	oneOf(refuseIf, "InFlight", op.InFlight, RefuseInFlight, WaitInFlight)
	oneOf(refuseIf, "Share", op.Share, SharePrincipal, ShareTenant)
	oneOf(refuseIf, "Evidence", op.Evidence, EvidenceNone, EvidenceChanges, EvidenceDecisions, EvidenceDurable)
	if op.Confirmation != nil {
		op.Confirmation.validate(refuseIf)
		refuseIf(op.Class == ReadOnly, "class I0 changes nothing and needs no Confirmation")
	}
	refuseIf(op.Sequenced && (op.Confirmation != nil || op.Class == ReadOnly), "Sequenced goes neither with Confirmation nor with class I0")
	refuseIf(op.Gapless && !op.Sequenced, "Gapless is for Sequenced operations")
	refuseIf((op.Compensation == "") != (op.Compensate == nil), "Compensation and Compensate go together")
	refuseIf(op.Compensation == op.Name && op.Name != "", "an operation can't compensate itself")
	for _, s := range op.Shields {
		oneOf(refuseIf, "Shields", s, ShieldProviderKey, ShieldOutbox, ShieldLedger, ShieldReconcile)
	}
	why := op.refuseWindow(op.Window)
	refuseIf(why != "", "Window %s", why)
	refuseIf(op.Remember != 0 && op.Remember < op.Window, "Remember %v is shorter than Window %v: a call isn't forgotten before its answer", op.Remember, op.Window)
	refuseIf(op.Remember > maxWindow, "Remember %v is longer than %v", op.Remember, maxWindow)
	refuseIf(op.Lease < minLease || op.Lease > maxLease, "Lease %v is outside %v to %v", op.Lease, minLease, maxLease)
	refuseIf(op.MaxWait < 0, "MaxWait is negative")
	refuseIf(op.MaxResult < 0, "MaxResult is negative")
	refuseIf(op.ReconcileEvery < 0, "ReconcileEvery is negative")
	refuseIf(op.Share == ShareTenant && op.Authorize == nil, "Share tenant needs Authorize: a replay could show one principal the answer of another")
	refuseIf(slices.Contains(op.Shields, ShieldReconcile) && op.Reconcile == nil, "shield S4 needs Reconcile")
	refuseIf(op.Class == Shielded && slices.Contains(op.Shields, ShieldLedger) && op.Effects == nil, "shield S3 needs Effects: the ledger proves what happened only where nothing happens outside it")
	for name, r := range map[string]Rate{"PerRecord": op.PerRecord, "PerPrincipal": op.PerPrincipal} {
		odd := !(r.PerSecond >= 0 && r.PerSecond <= maxRate) || r.Burst < 0 || (r.PerSecond == 0) != (r.Burst == 0)
		refuseIf(odd, "%s needs PerSecond, up to %d, and Burst above zero, or neither", name, maxRate)
		refill := float64(r.Burst) / r.PerSecond
		refuseIf(!odd && refill > ratelimit.MaxRefill.Seconds(), "%s takes %.3g seconds to refill Burst, more than the %.0f of ten years", name, refill, ratelimit.MaxRefill.Seconds())
	}
	for _, name := range op.Effects {
		refuseIf(name == "" || len(name) > store.MaxNameLen, "a name in Effects has %d bytes, not 1 to %d", len(name), store.MaxNameLen)
	}
	return errors.Join(errs...)
}

// refuseWindow says why an outcome can't be kept for that long; it is empty if it can.
func (op *Operation) refuseWindow(w time.Duration) string {
	switch {
	case w < minWindow || w > maxWindow:
		return fmt.Sprintf("%v is outside %v to %v", w, minWindow, maxWindow)
	case op.Financial && w < minFinancialWindow:
		return fmt.Sprintf("%v is shorter than the %v that a financial operation needs", w, minFinancialWindow)
	}
	return ""
}

func oneOf[T ~string](refuseIf refusal, field string, v T, allowed ...T) {
	refuseIf(!slices.Contains(allowed, v), "%s is %q, not one of %v", field, v, allowed)
}

// declares reports whether attempts may begin the named effect.
func (op *Operation) declares(name string) bool {
	return op.Effects == nil || strings.HasPrefix(name, "semel") || slices.ContainsFunc(op.Effects, func(d string) bool {
		prefix, wild := strings.CutSuffix(d, "*")
		return d == name || wild && strings.HasPrefix(name, prefix)
	})
}
