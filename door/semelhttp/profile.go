package semelhttp

import (
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/peer"
)

// Profile is the way that one contract expresses idempotency: statuses, shapes and defaults,
// never meaning. It is plain data: to deviate from a profile, copy it, change a field and put
// it in a [Route].
type Profile struct {
	// Name identifies the profile, such as "ietf".
	Name string
	// KeyOptional lets requests without a key pass unguarded. A route may override it.
	KeyOptional bool
	// MaxKey is the longest key, in bytes after unquoting.
	MaxKey int
	// OpaqueKeys allows any text in a bare key, even spaces, commas and semicolons.
	OpaqueKeys bool
	// EchoKey repeats the key header in every answer, as received.
	EchoKey bool
	// EchoHeaders are request headers that a replay or a refusal repeats, such as
	// Request-Id. The handler, which would do that, doesn't run for these.
	EchoHeaders []string
	// KeepHeaders are further headers of answers to keep; see Route.KeepHeaders.
	KeepHeaders []string
	// TransientHeader is a header that says "true" in a refusal if it makes sense to send the
	// same request again, for clients that take its absence as a no. Optional.
	TransientHeader string
	// Marker is the header that says "true" on a replay.
	Marker string
	// ConflictStatus is the answer to a used key with another payload.
	ConflictStatus int
	// Body says how bodies are compared if the route doesn't.
	Body BodyMode
	// OnFailure says what a failure such as a 500 means, if the operation doesn't say and isn't
	// financial.
	OnFailure semel.AfterFailure
	// NeverKeep5xx refuses a route if its operation replays failures.
	NeverKeep5xx bool
	// Answers say what the contract's own words in an answer mean, in place of the table of
	// package judge. Route.Answers come first.
	Answers judge.Answers
	// RetryHeader is a header that says "true" in an answer of 409, 500 or 503 if nothing
	// was done and the request may be sent again. A replayed 5xx and a held call say false
	// in it. Optional.
	RetryHeader string
	// Window is the window for operations that have none. Zero: the engine's default.
	Window time.Duration
	// Shape is the form of refusals.
	Shape Shape
	// Credentials are headers that authenticate callers of this contract, beside
	// the usual ones; see Route.Credential.
	Credentials []string
	// ScopeHeaders are part of the identity of every call; see
	// Route.ScopeHeaders.
	ScopeHeaders []string
	// Codes renames codes in refusals.
	Codes map[semel.Code]string
}

// Shape is the form of the body of a refusal.
type Shape string

// The shapes.
const (
	ShapeProblem Shape = "problem" // RFC 9457; the default
	ShapeStripe  Shape = "stripe"  // {"error":{"type","code","message"}}
	ShapeACP     Shape = "acp"     // {"type","code","message"}
	ShapeAdyen   Shape = "adyen"   // {"status","errorCode","message","errorType"}
)

const (
	markerSemel  = "Idempotency-Replayed"
	markerStripe = "Idempotent-Replayed"
)

// Marks returns the headers that mark an answer as replayed, a request as run unguarded, or an
// answer as one of Semel's own APIs. If you pass on answers to a guard, remove them.
func Marks() []string {
	return []string{markerSemel, markerStripe, UnguardedHeader, StreamHeader, peer.Header}
}

// IETF returns the profile of draft-ietf-httpapi-idempotency-key-header-07, and the default.
func IETF() Profile {
	return Profile{
		Name: "ietf", MaxKey: maxKeyLen, Marker: markerSemel, ConflictStatus: http.StatusUnprocessableEntity,
		Body: BodyAuto, OnFailure: semel.RetryFailure, Shape: ShapeProblem,
	}
}

// Stripe is the profile of Stripe's API v1: keys are optional and echoed, a mismatch is
// 400 with the type idempotency_error, and a 500 is replayed, as is a declined card's 402. If
// a 409, 500 or 503 says Stripe-Should-Retry: true, nothing was done, and the next delivery
// runs. Connected accounts have keys of their own.
func Stripe() Profile {
	return Profile{
		Name: "stripe", KeyOptional: true, MaxKey: maxContractLen, OpaqueKeys: true, EchoKey: true, Marker: markerStripe,
		ConflictStatus: http.StatusBadRequest, Body: BodyAuto, OnFailure: semel.ReplayFailure, Shape: ShapeStripe,
		ScopeHeaders: []string{"Stripe-Account", "Stripe-Context"},
		Answers:      judge.Answers{Final: []string{"402"}}, // a card was declined
		RetryHeader:  "Stripe-Should-Retry",
		Codes:        map[semel.Code]string{semel.CodeInFlight: "idempotency_key_in_use"},
	}
}

// ACP is the profile of the Agentic Commerce Protocol 2026-04-17: flat errors,
// keys required, opaque, echoed and independent for each path, request ids echoed, and
// 5xx never kept.
func ACP() Profile {
	return Profile{
		Name: "acp", MaxKey: maxContractLen, OpaqueKeys: true, EchoKey: true, EchoHeaders: []string{"Request-Id"}, Marker: markerStripe,
		ConflictStatus: http.StatusUnprocessableEntity, Body: BodyAuto, OnFailure: semel.RetryFailure, NeverKeep5xx: true,
		Shape: ShapeACP, ScopeHeaders: []string{ScopePath},
		Codes: map[semel.Code]string{
			door.CodeKeyMissing:   "idempotency_key_required",
			semel.CodeInFlight:    "idempotency_in_flight",
			semel.CodeConflict:    "idempotency_conflict",
			door.CodeKeyInvalid:   "idempotency_key_invalid",
			semel.CodeHeld:        "idempotency_held",
			semel.CodeOtherCaller: "idempotency_other_caller",
			semel.CodeThrottled:   "rate_limited",
		},
	}
}

// UCP is the profile of the Universal Commerce Protocol: bodies are compared byte
// for byte, a mismatch is 409, UCP-Agent tells platforms apart, and an answer's signature
// is replayed with it.
func UCP() Profile {
	p := IETF()
	p.EchoHeaders = []string{"Request-Id"}
	p.KeepHeaders = []string{"Content-Digest", "Signature", "Signature-Input"}
	p.Name, p.ConflictStatus, p.Body = "ucp", http.StatusConflict, BodyRaw
	p.Credentials = []string{"Ucp-Agent"}
	return p
}

// Adyen is the profile of Adyen's API: keys are optional, of at most 64 characters, and
// echoed, and its window is 31 days. Refusals have the shape of Adyen's errors and say
// whether they are transient.
func Adyen() Profile {
	p := IETF()
	p.Name, p.KeyOptional, p.MaxKey, p.EchoKey = "adyen", true, maxAdyenKeyLen, true
	p.Window = 31 * 24 * time.Hour
	p.Credentials = []string{"X-Api-Key"}
	p.Shape, p.TransientHeader = ShapeAdyen, "Transient-Error"
	p.Codes = map[semel.Code]string{semel.CodeInFlight: "704"} // request already processed or in progress
	return p
}

// X402 is the profile of programs that charge by x402: a 402 names the price and means that
// nothing was done, so the same request runs once it brings the payment. A replay has the
// receipt of the payment.
func X402() Profile {
	p := IETF()
	p.Name = "x402"
	p.Answers = judge.Answers{NotExecuted: []string{"402"}}
	p.KeepHeaders = []string{"Payment-Response", "X-Payment-Response"}
	return p
}

// ProfileByName finds a built-in profile: ietf, stripe, acp, ucp, adyen or x402.
func ProfileByName(name string) (Profile, bool) {
	for _, p := range [...]Profile{IETF(), Stripe(), ACP(), UCP(), Adyen(), X402()} {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}
