package semel

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// ConfirmationPolicy requires a token before a call is executed (IDS-X.1): the first
// delivery gets [CodeConfirmationRequired] and a token, and a delivery with the token
// executes. The write that claims the call uses the token up, so only one of any number
// of deliveries with it executes. Deliveries of a confirmed call need no confirmation
// any more (IDS-X.3); if the tenant shares its keys, that applies only to the principal
// who confirmed it.
//
// Until it is confirmed the call is an aborted attempt: nothing was executed. A
// token is bound to the identity of the call, its principal, its fingerprint and its
// [AttributeCommandID]. If the caller can't bring the token, an operator can confirm the call by
// [Engine.Confirm].
//
// Deliveries that ask for a token or have a wrong one are limited like duplicates, by
// Operation.PerRecord and PerPrincipal. Without PerRecord a call can ask 20 times at
// once, and then every 5 seconds.
type ConfirmationPolicy struct {
	// TTL is how long a token is valid. Defaults to 5 minutes, which is the maximum.
	TTL time.Duration
	// MaxTries is how many wrong tokens or proofs are accepted. After that all tokens of the
	// call are void until the last of them would have expired. Defaults to 5.
	MaxTries int
	// StepUp verifies Call.StepUp, a further proof such as a one-time password. It is called
	// once for each delivery with a valid token. Semel counts the try first, so that concurrent
	// guesses are limited, too. An error refuses the delivery. Optional.
	StepUp func(ctx context.Context, call Call) error
}

// Bounds and defaults of a [ConfirmationPolicy].
const (
	MaxConfirmationTTL          = 5 * time.Minute
	DefaultConfirmationMaxTries = 5
	// maxTokens is how many tokens of one call are valid at a time: a client that lost the
	// answer asks for another token, and may still use the first.
	maxTokens = 4
)

func (p *ConfirmationPolicy) validate(refuseIf refusal) {
	refuseIf(p.TTL < 0 || p.TTL > MaxConfirmationTTL, "Confirmation.TTL %v is not up to %v", p.TTL, MaxConfirmationTTL)
	refuseIf(p.MaxTries < 0, "Confirmation.MaxTries is negative")
}

func (p *ConfirmationPolicy) ttl() time.Duration { return cmp.Or(p.TTL, MaxConfirmationTTL) }
func (p *ConfirmationPolicy) maxTries() int      { return cmp.Or(p.MaxTries, DefaultConfirmationMaxTries) }

// Challenge is what a caller needs to confirm a call.
type Challenge struct {
	// Token is 256 random bits in base64url. This is the only copy; the store has its
	// digest. Don't put it in a URL or a log.
	Token string `json:"token"`
	// ExpiresAt is when the token expires.
	ExpiresAt time.Time `json:"expires_at"`
	// StepUp says that a further proof is needed.
	StepUp bool `json:"step_up,omitempty"`
}

// tokenDigest binds a token to its call.
func tokenDigest(token string, rec *Record, call *Call) store.Digest {
	d := rec.ID.Digest()
	b := append([]byte("semel-confirmation-1"), d[:]...)
	b = canon.Frame(b, token)
	b = canon.Frame(b, call.Principal)
	fp, _ := call.Fingerprint.AppendBinary(nil) // never fails
	b = canon.Frame(b, fp)
	b = canon.Frame(b, call.Attributes[AttributeCommandID])
	return sha256.Sum256(b)
}

// confirming is the state of one delivery's confirmation. It survives when the record
// changes under the delivery and the claim starts over: StepUp is called only once,
// because a one-time password may be accepted only once.
type confirming struct {
	counted bool  // against the rates
	asked   bool  // StepUp was called
	err     error // that StepUp returned
}

// confirmationRate limits how fast a record issues tokens and counts wrong ones, unless
// Operation.PerRecord does.
var confirmationRate = ratelimit.Rate{PerSecond: 0.2, Burst: 20}

// limitConfirming throttles a delivery that would cause a write although nothing can be
// executed. A delivery with a valid token is never throttled.
func (d *delivery) limitConfirming(claim *Record) bool {
	if d.proof.counted {
		return false
	}
	d.proof.counted = true
	delay := d.throttled(&claim.ID)
	if d.op.PerRecord.Burst == 0 {
		delay = max(delay, d.engine.throttle.Take(confirmationRate, ratelimit.Name{Kind: "confirmation", ID: claim.ID}, d.at.now))
	}
	if delay == 0 {
		return false
	}
	d.ans.throttle(delay, LimitDuplicates)
	d.ans.Record = d.cur
	if d.cur.State == absent {
		d.ans.Record = &Record{ID: claim.ID}
	}
	return true
}

// confirm decides whether a delivery that would execute is confirmed. claim is the
// attempt that it would open. If the delivery is confirmed, confirm marks the claim, and
// writing the claim uses the token up. Otherwise the error is the delivery's answer.
func (d *delivery) confirm(ctx context.Context, claim *Record) (progress, error) {
	policy, now := d.op.Confirmation, d.at.now
	if policy == nil {
		return proceed, nil
	}
	c := cmp.Or(claim.Confirmation, &store.Confirmation{Principal: d.call.Principal})
	var next *Record
	var refusal, err error
	change := store.ChangeUnconfirmed
	switch {
	case c.Principal != d.call.Principal:
		// This can happen if a tenant shares its keys. The try isn't counted, or one
		// principal could void the tokens of another.
		return answered, &Error{Code: CodeConfirmationRefused, Message: "the call is to be confirmed by another principal"}
	case c.ConfirmedAt != 0:
		return proceed, nil
	case c.Tries >= policy.maxTries() && now < goodUntil(c) && !d.proof.asked:
		return answered, &Error{Code: CodeConfirmationRefused, Message: "too many wrong confirmations", RetryAfter: max(goodUntil(c).Sub(now), time.Second)}
	case d.call.Confirm == "" && !validToken(c, claim, &d.call, now):
		if d.limitConfirming(claim) {
			return answered, nil
		}
		change, refusal = store.ChangeChallenged, &Error{Code: CodeConfirmationRequired, Message: "the call is to be confirmed"}
		next, err = d.challenge(claim, c)
	case !validToken(c, claim, &d.call, now):
		refusal = &Error{Code: CodeConfirmationRefused, Message: "the confirmation token is wrong, was used, or has ended"}
		if !d.unconfirmed() {
			return answered, refusal // nothing waits for a confirmation
		}
		if d.limitConfirming(claim) {
			return answered, nil
		}
		next, err = withTries(d.cur, c, now, 1)
	case policy.StepUp == nil || d.proof.asked && d.proof.err == nil:
		claim.Confirmation = &store.Confirmation{Principal: c.Principal, Tries: c.Tries, ConfirmedAt: now}
		return proceed, nil
	case !d.proof.asked:
		// The try is counted before the proof is verified. Otherwise any number of
		// guesses that arrive together would be verified.
		return startOver, d.stepUp(ctx, c)
	default:
		refusal = &Error{Code: CodeConfirmationRefused, Message: "the further proof was refused", Err: d.proof.err}
		next, err = withTries(d.cur, c, now, 0)
	}
	if err != nil {
		return answered, err
	}
	// A crash before this write leaves no token, or one try less counted, and nobody was
	// answered. A crash after it leaves a token that was never sent; it expires, and the record
	// with it.
	stored, applied, err := d.engine.replace(ctx, d.op, d.cur, next, change, nil)
	if err == nil && applied {
		d.ans.Record = next
		return answered, refusal
	}
	d.ans.Challenge = nil
	d.cur = stored
	return startOver, err
}

// stepUp counts a try, and then has the program verify the further proof.
func (d *delivery) stepUp(ctx context.Context, c *store.Confirmation) error {
	next, err := withTries(d.cur, c, d.at.now, 1)
	if err != nil {
		return err
	}
	// A crash before this write leaves the proof unverified. A crash after it leaves one
	// try counted, and a proof that may be used up: the caller sends another. The next
	// write has the evidence of the result.
	stored, applied, err := d.engine.replace(ctx, d.op, d.cur, next, store.ChangePostponed, nil)
	if err == nil && applied {
		d.proof.asked, d.proof.err = true, d.op.Confirmation.StepUp(ctx, d.call)
	}
	d.cur = stored
	return err
}

// unconfirmed reports whether the stored record is this call's and still waits for its
// confirmation.
func (d *delivery) unconfirmed() bool { return !isNew(&d.call, d.cur, d.at.now) && unconfirmed(d.cur) }

func unconfirmed(cur *Record) bool {
	return cur.State == Failed && cur.Confirmation != nil && cur.Confirmation.ConfirmedAt == 0
}

// withTries makes the successor of an unconfirmed record with n more tries counted.
func withTries(cur *Record, c *store.Confirmation, now store.Instant, n int) (*Record, error) {
	next, err := successor(cur, evConfirm, now)
	if err == nil {
		counted := *c
		counted.Tries += n
		next.Confirmation = &counted
	}
	return next, err
}

// challenge makes a token, and the record with its digest.
func (d *delivery) challenge(claim *Record, c *store.Confirmation) (next *Record, err error) {
	op, cur, now := d.op, d.cur, d.at.now
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, &Error{Code: CodeStoreUnavailable, Message: "no random numbers", Err: err}
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	until := now.Add(op.Confirmation.ttl())
	if d.unconfirmed() {
		next, err = successor(cur, evConfirm, now)
	} else {
		// The attempt ends as soon as it begins: nothing was executed, which is what aborted
		// means, and the next delivery may run.
		next, err = end(claim, evAbort, now, Result{}, &store.Failure{Code: string(CodeConfirmationRequired)})
		if err == nil && next.Attempt == 1 {
			next.ExpiresAt = until // an unconfirmed record needn't be kept longer than its token
		}
	}
	if err != nil {
		return nil, err
	}
	if !byOperator(next, now) {
		next.Settled = nil // the time of their confirmation is over
	}
	addToken(next, c, token, d.call.Fingerprint, now, until)
	d.ans.Challenge = &Challenge{Token: token, ExpiresAt: until.Time(), StepUp: op.Confirmation.StepUp != nil}
	return next, nil
}

// addToken adds a token to those of c that are still good, bound to the call as it was first
// asked for, and keeps the record as long as the token.
func addToken(next *Record, c *store.Confirmation, token string, f Fingerprint, now, until store.Instant) {
	asked := *c
	asked.Tokens = slices.DeleteFunc(slices.Clone(c.Tokens), func(t store.ConfirmationToken) bool { return now >= t.ExpiresAt })
	if len(asked.Tokens) == 0 {
		asked.Tries = 0
	}
	asked.Tokens = asked.Tokens[max(0, len(asked.Tokens)-maxTokens+1):]
	// The record's attributes have the command id of the first delivery.
	bound := Call{Principal: c.Principal, Fingerprint: f, Attributes: next.Attributes}
	asked.Tokens = append(asked.Tokens, store.ConfirmationToken{Digest: tokenDigest(token, next, &bound), ExpiresAt: until})
	next.Confirmation = &asked
	// A call that was tried before its operation required confirmation keeps its
	// window, and with it its effect ledger.
	next.ExpiresAt = max(next.ExpiresAt, until)
	next.NextAt = next.AnswerUntil()
}

// byWord is the token of an operator's confirmation: the one that a delivery without a token has.
const byWord = ""

// Confirm confirms a call that waits for its confirmation, for an operator: a person has said yes,
// and the caller can't bring the token. The next delivery of the call runs without one, once, if it
// comes before [ConfirmationPolicy].TTL is over and has the principal, the payload and the
// [AttributeCommandID] that the call was first asked for with. Who confirmed it, and why, goes
// into the record, see [store.Settled].
//
// A fence other than zero must be that of the record that the person saw. Another payload under
// the same key has another fence, once the time of the first is over.
//
// Confirm refuses with [CodeIllegalTransition] a record with another fence, one that doesn't wait for
// a confirmation, or no longer, one that an operator has confirmed already, and one whose tries are
// used up. It can't confirm a call that needs [ConfirmationPolicy].StepUp ([CodeUnsupported]): only
// the caller has that proof. An operation that isn't registered here is refused with
// [CodeUnknownOperation].
func (e *Engine) Confirm(ctx context.Context, id ID, fence int64, who, reason string) (Record, error) {
	op, known := e.handles(id.Operation)
	if !known {
		return Record{}, &Error{Code: CodeUnknownOperation, Message: "operation " + id.Operation + " is not registered here: ask a program that knows it"}
	}
	if p := op.Confirmation; p != nil && p.StepUp != nil {
		return Record{}, &Error{Code: CodeUnsupported, Message: "the call needs a further proof, which only its caller can give"}
	}
	// A crash before this write leaves the call unconfirmed. A crash after it leaves it confirmed
	// until its caller asks again, or the time is over.
	rec, err := e.change(ctx, id, store.ChangeConfirmed, func(cur *Record, now store.Instant) (*Record, error) {
		if err := seen(cur, fence); err != nil {
			return nil, err
		}
		if why := notConfirmable(op.Confirmation, cur, now); why != "" {
			return nil, &Error{Code: CodeIllegalTransition, Message: why}
		}
		next, err := successor(cur, evConfirm, now)
		if err == nil {
			next.Settled = &store.Settled{By: store.ByOperator, Who: keptText(who), Reason: keptText(reason), At: now}
			addToken(next, cur.Confirmation, byWord, cur.Fingerprint, now, now.Add(op.Confirmation.ttl()))
		}
		return next, err
	})
	return *rec, err
}

// notConfirmable says why an operator can't confirm a record; empty if they can.
func notConfirmable(p *ConfirmationPolicy, cur *Record, now store.Instant) string {
	switch c := cur.Confirmation; {
	case p == nil:
		return "the operation doesn't ask for confirmations"
	case !unconfirmed(cur):
		return "the record doesn't wait for a confirmation"
	case cur.Expired(now):
		return "the time to confirm the call is over: its next delivery asks for a new confirmation"
	case c.Tries >= p.maxTries() && now < goodUntil(c):
		return "the call has had too many wrong confirmations"
	case byOperator(cur, now):
		return "the call is confirmed, and waits for its caller"
	}
	return ""
}

// byOperator reports whether an operator's confirmation waits for the call's next delivery.
func byOperator(cur *Record, now store.Instant) bool {
	c := cur.Confirmation
	return c != nil && validToken(c, cur, &Call{Principal: c.Principal, Fingerprint: cur.Fingerprint, Attributes: cur.Attributes}, now)
}

// goodUntil returns when the last token expires.
func goodUntil(c *store.Confirmation) (until store.Instant) {
	for i := range c.Tokens {
		until = max(until, c.Tokens[i].ExpiresAt)
	}
	return until
}

// validToken reports whether the call has a valid token, in constant time.
func validToken(c *store.Confirmation, rec *Record, call *Call, now store.Instant) bool {
	want := tokenDigest(call.Confirm, rec, call)
	found := 0
	for i := range c.Tokens {
		same := subtle.ConstantTimeCompare(c.Tokens[i].Digest[:], want[:])
		if now < c.Tokens[i].ExpiresAt {
			found |= same
		}
	}
	return found != 0
}
