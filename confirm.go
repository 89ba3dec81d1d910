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
// of a call that was confirmed are never asked again (IDS-X.3).
//
// Until it is confirmed the call is an aborted attempt: nothing was executed. A
// token is bound to the identity of the call, its principal, its fingerprint and its
// [AttributeCommandID].
type ConfirmationPolicy struct {
	// TTL is how long a token is good for. Defaults to 5 minutes, which is the most.
	TTL time.Duration
	// MaxTries is how many wrong tokens or proofs are accepted before all tokens of
	// the call are void until they would have ended. Defaults to 5.
	MaxTries int
	// StepUp verifies Call.StepUp, a further proof such as a one-time password,
	// after the token was found right. An error refuses the delivery and counts as
	// a try. Optional.
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
	// Tries counts wrong tokens and proofs.
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

// confirm decides whether a delivery that would execute is confirmed. claim is the
// attempt that it would open, and follows cur; if the delivery is confirmed the claim
// says so afterwards, and writing it uses the token up. An error is the answer of one
// that is not. The record that is returned came between: the caller looks at it.
func (e *Engine) confirm(ctx context.Context, op *operation, call *Call, cur, claim *Record, ans *Answer, now Instant) (*Record, error) {
	policy, c := op.Confirmation, claim.Confirmation
	if c == nil {
		c = &Confirmation{Principal: call.Principal}
	}
	var next *Record
	var refusal error
	var err error
	change := ChangeUnconfirmed
	switch {
	case c.ConfirmedAt != 0:
		return nil, nil
	case c.Tries >= policy.maxTries():
		return nil, &Error{Code: CodeConfirmationRefused, Message: "too many wrong confirmations", RetryAfter: max(cur.ExpiresAt.Sub(now), time.Second)}
	case call.Confirm == "":
		change, refusal = ChangeChallenged, &Error{Code: CodeConfirmationRequired, Message: "the call is to be confirmed"}
		next, err = e.challenge(op, call, cur, claim, c, ans, now)
	default:
		if refusal = c.check(ctx, policy, claim, call, now); refusal == nil {
			claim.Confirmation = &Confirmation{Principal: c.Principal, Tries: c.Tries, ConfirmedAt: now}
			return nil, nil
		}
		if cur.State != Failed || cur.Expired(now) || cur.Confirmation == nil {
			return nil, refusal // there is nothing that it could confirm
		}
		if next, err = successor(cur, evConfirm, now); err == nil {
			tried := *c
			tried.Tries++
			next.Confirmation = &tried
		}
	}
	if err != nil {
		return nil, err
	}
	e.stamp(&op.Operation, cur, next, change)
	// A crash before this write leaves no token, or one try less counted, and nobody
	// was answered. A crash after it leaves a token that nobody knows, which ends by
	// itself, as the record does then.
	stored, applied, err := e.apply(ctx, next, cur.Revision)
	if err == nil && applied {
		ans.Record = next
		return nil, refusal
	}
	ans.Challenge = nil
	return stored, err
}

// challenge makes a token, and the record that knows it.
func (e *Engine) challenge(op *operation, call *Call, cur, claim *Record, c *Confirmation, ans *Answer, now Instant) (next *Record, err error) {
	if c.Principal != call.Principal {
		return nil, &Error{Code: CodeConfirmationRefused, Message: "the call waits for the confirmation of another principal"}
	}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, &Error{Code: CodeStoreUnavailable, Message: "no random numbers", Err: err}
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	until := now.Add(op.Confirmation.ttl())
	if cur.State == Failed && !cur.Expired(now) && cur.Confirmation != nil {
		next, err = successor(cur, evConfirm, now)
	} else {
		// The attempt ends as it begins: nothing was executed, which is what
		// aborted means, and the next delivery may run.
		next, err = end(&op.Operation, claim, evAbort, now, Result{}, &Failure{Code: string(CodeConfirmationRequired)})
	}
	if err != nil {
		return nil, err
	}
	asked := *c
	asked.Tokens = slices.DeleteFunc(slices.Clone(c.Tokens), func(t ConfirmationToken) bool { return now >= t.ExpiresAt })
	asked.Tokens = asked.Tokens[max(0, len(asked.Tokens)-maxTokens+1):]
	bound := *call
	bound.Attributes = next.Attributes // with the command id of the first delivery
	asked.Tokens = append(asked.Tokens, ConfirmationToken{Digest: tokenDigest(token, next, &bound), ExpiresAt: until})
	next.Confirmation = &asked
	// What is left when nobody confirms is of no use to anyone.
	next.ExpiresAt, next.NextAt = until, until
	ans.Challenge = &Challenge{Token: token, ExpiresAt: until.Time(), StepUp: op.Confirmation.StepUp != nil}
	return next, nil
}

// check verifies a token and, if that is right, the further proof.
func (c *Confirmation) check(ctx context.Context, policy *ConfirmationPolicy, rec *Record, call *Call, now Instant) error {
	refused := &Error{Code: CodeConfirmationRefused, Message: "the confirmation token is wrong, was used, or has ended"}
	if c.Principal != call.Principal {
		return refused
	}
	want := tokenDigest(call.Confirm, rec, call)
	found := 0
	for i := range c.Tokens {
		same := subtle.ConstantTimeCompare(c.Tokens[i].Digest[:], want[:])
		if now < c.Tokens[i].ExpiresAt {
			found |= same
		}
	}
	if found == 0 {
		return refused
	}
	if policy.StepUp != nil {
		if err := policy.StepUp(ctx, *call); err != nil {
			return &Error{Code: CodeConfirmationRefused, Message: "the further proof was refused", Err: err}
		}
	}
	return nil
}
