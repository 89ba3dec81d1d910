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
)

// ConfirmationPolicy asks for a token before a call is executed (IDS-X.1): the first
// delivery is answered with [CodeConfirmationRequired] and a token, and one that
// brings the token executes. The token is used up by the very write that claims the
// call, so that of any number of deliveries that bring it one executes. Deliveries
// of a call that was confirmed are never asked again (IDS-X.3), where the tenant shares
// its keys those of the principal who confirmed it.
//
// Until it is confirmed the call is an aborted attempt: nothing was executed. A
// token is bound to the identity of the call, its principal, its fingerprint and its
// [AttributeCommandID].
//
// Deliveries that ask for a token or bring a wrong one are limited like duplicates, by
// Operation.PerRecord and PerPrincipal. Without PerRecord a call can ask 20 times at
// once, and then every 5 seconds.
type ConfirmationPolicy struct {
	// TTL is how long a token is good for. Defaults to 5 minutes, which is the most.
	TTL time.Duration
	// MaxTries is how many wrong tokens or proofs are accepted before all tokens of
	// the call are void until they would have ended. Defaults to 5.
	MaxTries int
	// StepUp verifies Call.StepUp, a further proof such as a one-time password,
	// after the token was found right, once for each delivery. The try is counted
	// before it is asked, so that guesses which arrive together are limited too. An
	// error refuses the delivery. Optional.
	StepUp func(ctx context.Context, call Call) error
}

// Bounds and defaults of a [ConfirmationPolicy].
const (
	MaxConfirmationTTL          = 5 * time.Minute
	DefaultConfirmationMaxTries = 5
	// maxTokens is how many tokens of one call are good at a time: a delivery whose
	// answer was lost asks for another, and the first may still be used.
	maxTokens = 4
)

func (p *ConfirmationPolicy) validate(bad func(format string, args ...any)) {
	if p.TTL < 0 || p.TTL > MaxConfirmationTTL {
		bad("Confirmation.TTL %v is not up to %v", p.TTL, MaxConfirmationTTL)
	}
	if p.MaxTries < 0 {
		bad("Confirmation.MaxTries is negative")
	}
}

func (p *ConfirmationPolicy) ttl() time.Duration { return cmp.Or(p.TTL, MaxConfirmationTTL) }
func (p *ConfirmationPolicy) maxTries() int      { return cmp.Or(p.MaxTries, DefaultConfirmationMaxTries) }

// Challenge is what confirms a call.
type Challenge struct {
	// Token is 256 random bits in base64url. It is nowhere but here; the store has
	// its digest. It belongs neither in a URL nor in a log.
	Token string `json:"token"`
	// ExpiresAt is until when it is good.
	ExpiresAt time.Time `json:"expires_at"`
	// StepUp says that a further proof is needed.
	StepUp bool `json:"step_up,omitempty"`
}

// Confirmation is what a record knows about the confirmation of its call.
type Confirmation struct {
	// Tokens are those that were given out and may still be used. Once one was
	// used there are none.
	Tokens []ConfirmationToken `json:"tokens,omitempty"`
	// Tries counts wrong tokens, and proofs that were looked at.
	Tries int `json:"tries,omitempty"`
	// Principal is to whom the tokens were given; only he can use them.
	Principal string `json:"principal,omitempty"`
	// ConfirmedAt is when a token was used; zero until then.
	ConfirmedAt Instant `json:"confirmed_at,omitzero"`
}

// ConfirmationToken is a token that was given out.
type ConfirmationToken struct {
	// Digest is that of the token and all it is bound to.
	Digest Digest `json:"digest"`
	// ExpiresAt is until when it is good.
	ExpiresAt Instant `json:"expires_at"`
}

// tokenDigest binds a token to its call.
func tokenDigest(token string, rec *Record, call *Call) Digest {
	d := rec.ID.Digest()
	b := append([]byte("semel-confirmation-1"), d[:]...)
	b = frame(b, token)
	b = frame(b, call.Principal)
	fp, _ := call.Fingerprint.AppendBinary(nil) // which has a fixed form
	b = frame(b, fp)
	b = frame(b, call.Attributes[AttributeCommandID])
	return sha256.Sum256(b)
}

// confirming is what one delivery has done to be confirmed, however often the record
// changes under it. Its further proof is verified once, for who verifies may take it
// only once.
type confirming struct {
	counted bool // against the rates
	asked   bool // for the further proof; err is what was said of it
	err     error
}

// confirmationRate limits, for each record, the tokens that are given out and the
// wrong ones that are counted, where Operation.PerRecord does not.
var confirmationRate = Rate{PerSecond: 0.2, Burst: 20}

// limit throttles a delivery that would make the store write although nothing can be
// executed. A good token is never throttled.
func (f *confirming) limit(e *Engine, op *operation, call *Call, cur, claim *Record, ans *Answer, now Instant) bool {
	if f.counted {
		return false
	}
	f.counted = true
	delay := e.throttled(op, call, &claim.ID, now)
	if op.PerRecord.Burst == 0 {
		delay = max(delay, e.throttle.take(confirmationRate, bucketName{kind: 'c', id: claim.ID}, now))
	}
	if delay == 0 {
		return false
	}
	ans.Decision, ans.Record, ans.RetryAfter = Throttled, cur, delay
	if cur.State == absent {
		ans.Record = &Record{ID: claim.ID}
	}
	return true
}

// confirm decides whether a delivery that would execute is confirmed. claim is the
// attempt that it would open, and follows cur; if the delivery is confirmed the claim
// says so afterwards, and writing it uses the token up. An error is the answer of one
// that is not, unless ans says that it is throttled. The record that is returned came
// between: the caller looks at it.
func (e *Engine) confirm(ctx context.Context, op *operation, call *Call, further *confirming, cur, claim *Record, ans *Answer, now Instant) (*Record, error) {
	policy, c := op.Confirmation, claim.Confirmation
	if c == nil {
		c = &Confirmation{Principal: call.Principal}
	}
	var next *Record
	var refusal, err error
	change := ChangeUnconfirmed
	switch {
	case c.Principal != call.Principal:
		// Where a tenant shares its keys: nothing that this one says is counted, or
		// it could void the tokens of the other.
		return nil, &Error{Code: CodeConfirmationRefused, Message: "the call is to be confirmed by another principal"}
	case c.ConfirmedAt != 0:
		return nil, nil
	case c.Tries >= policy.maxTries() && now < c.goodUntil() && !further.asked:
		return nil, &Error{Code: CodeConfirmationRefused, Message: "too many wrong confirmations", RetryAfter: max(c.goodUntil().Sub(now), time.Second)}
	case call.Confirm == "":
		if further.limit(e, op, call, cur, claim, ans, now) {
			return nil, nil
		}
		change, refusal = ChangeChallenged, &Error{Code: CodeConfirmationRequired, Message: "the call is to be confirmed"}
		next, err = e.challenge(op, call, cur, claim, c, ans, now)
	case !c.knows(claim, call, now):
		refusal = &Error{Code: CodeConfirmationRefused, Message: "the confirmation token is wrong, was used, or has ended"}
		if !cur.unconfirmed(now) {
			return nil, refusal // there is nothing that it could confirm
		}
		if further.limit(e, op, call, cur, claim, ans, now) {
			return nil, nil
		}
		next, err = tried(cur, c, now, 1)
	case policy.StepUp == nil || further.asked && further.err == nil:
		claim.Confirmation = &Confirmation{Principal: c.Principal, Tries: c.Tries, ConfirmedAt: now}
		return nil, nil
	case !further.asked:
		// The try is counted before the proof is looked at. Otherwise any number
		// of guesses that arrive together would be looked at.
		return e.stepUp(ctx, op, call, further, cur, c, now)
	default:
		refusal = &Error{Code: CodeConfirmationRefused, Message: "the further proof was refused", Err: further.err}
		next, err = tried(cur, c, now, 0)
	}
	if err != nil {
		return nil, err
	}
	v := e.stamp(&op.Operation, cur, next, change)
	// A crash before this write leaves no token, or one try less counted, and nobody
	// was answered. A crash after it leaves a token that nobody knows, which ends by
	// itself, as the record does then.
	stored, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		ans.Record = next
		return nil, refusal
	}
	ans.Challenge = nil
	return stored, err
}

// stepUp counts a try and has the further proof verified.
func (e *Engine) stepUp(ctx context.Context, op *operation, call *Call, further *confirming, cur *Record, c *Confirmation, now Instant) (*Record, error) {
	next, err := tried(cur, c, now, 1)
	if err != nil {
		return nil, err
	}
	v := e.stamp(&op.Operation, cur, next, ChangePostponed) // what it led to is told by the next write
	// A crash before this write leaves the proof unseen. A crash after it leaves one
	// try counted, and a proof that may be used up: the caller brings another.
	stored, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		further.asked, further.err = true, op.Confirmation.StepUp(ctx, *call)
	}
	return stored, err
}

// unconfirmed reports whether the record waits for the confirmation of its call.
func (r *Record) unconfirmed(now Instant) bool {
	return r.State == Failed && !r.Expired(now) && r.Confirmation != nil && r.Confirmation.ConfirmedAt == 0
}

// tried makes the successor of an unconfirmed record with so many more tries counted.
func tried(cur *Record, c *Confirmation, now Instant, n int) (*Record, error) {
	next, err := successor(cur, evConfirm, now)
	if err == nil {
		counted := *c
		counted.Tries += n
		next.Confirmation = &counted
	}
	return next, err
}

// challenge makes a token, and the record that knows it.
func (e *Engine) challenge(op *operation, call *Call, cur, claim *Record, c *Confirmation, ans *Answer, now Instant) (next *Record, err error) {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, &Error{Code: CodeStoreUnavailable, Message: "no random numbers", Err: err}
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	until := now.Add(op.Confirmation.ttl())
	if cur.unconfirmed(now) {
		next, err = successor(cur, evConfirm, now)
	} else {
		// The attempt ends as it begins: nothing was executed, which is what
		// aborted means, and the next delivery may run.
		next, err = end(claim, evAbort, now, Result{}, &Failure{Code: string(CodeConfirmationRequired)})
		if err == nil && next.Attempt == 1 {
			next.ExpiresAt = until // what is left when nobody confirms is of no use
		}
	}
	if err != nil {
		return nil, err
	}
	asked := *c
	asked.Tokens = slices.DeleteFunc(slices.Clone(c.Tokens), func(t ConfirmationToken) bool { return now >= t.ExpiresAt })
	if len(asked.Tokens) == 0 {
		asked.Tries = 0
	}
	asked.Tokens = asked.Tokens[max(0, len(asked.Tokens)-maxTokens+1):]
	bound := *call
	bound.Attributes = next.Attributes // with the command id of the first delivery
	asked.Tokens = append(asked.Tokens, ConfirmationToken{Digest: tokenDigest(token, next, &bound), ExpiresAt: until})
	next.Confirmation = &asked
	// A call that was tried before its operation asked for confirmation keeps its
	// window, and with it the ledger of what it did.
	next.ExpiresAt = max(next.ExpiresAt, until)
	next.NextAt = next.ExpiresAt
	ans.Challenge = &Challenge{Token: token, ExpiresAt: until.Time(), StepUp: op.Confirmation.StepUp != nil}
	return next, nil
}

// goodUntil is when the last token ends.
func (c *Confirmation) goodUntil() (until Instant) {
	for i := range c.Tokens {
		until = max(until, c.Tokens[i].ExpiresAt)
	}
	return until
}

// knows reports whether the token that the call brings is a good one. How long it
// takes says nothing about the tokens.
func (c *Confirmation) knows(rec *Record, call *Call, now Instant) bool {
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
