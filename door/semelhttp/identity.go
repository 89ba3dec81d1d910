package semelhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/credential"
	"github.com/semelhq/semel/internal/network"
)

// IdentityFunc says who sent a request, as verified by your authentication outside the guard.
// It must not fall back to a constant: all callers with one principal share their keys, and get
// each other's answers.
//
// [ErrNoIdentity] means that the request had nothing to verify. The guard then treats it as if
// there were no IdentityFunc, by the digest of what Route.Credential names and by the rule of
// Route.Anonymous, within the tenant that came with the error; see [Caller.Name]. If you verify
// credentials, never return it for one that turned out bad, and never give anybody a principal
// that [DerivedPrincipal] reports.
//
// Any other error refuses the request: with 403 if it is a [semel.Error] with
// [semel.CodeForbidden], with 503 if it has [semel.CodeStoreUnavailable], otherwise with 401.
// The caller doesn't see its text, except what a [Refused] tells them.
type IdentityFunc func(r *http.Request) (tenant, principal string, err error)

// Anonymous says what happens to a request without a credential.
type Anonymous string

// The rules for anonymous requests. All accepted ones share one principal.
const (
	// AnonymousLoopback, the default, accepts them if they were received on a loopback
	// address or a Unix socket, and refuses them otherwise. Requests that a proxy on the
	// same machine passes on are received there too, so it refuses any with Forwarded,
	// Via, X-Real-IP or an X-Forwarded header. If your proxy sends none of these, you
	// need AnonymousRefuse.
	AnonymousLoopback Anonymous = "loopback"
	// AnonymousShare accepts all of them: anybody who knows a key and its payload gets the
	// answer.
	AnonymousShare Anonymous = "share"
	// AnonymousRefuse accepts none, wherever they come from.
	AnonymousRefuse Anonymous = "refuse"
)

// ErrNoIdentity is the error of an [IdentityFunc] that leaves a request to the default rule.
var ErrNoIdentity = errors.New("semelhttp: the caller has no verified identity")

// Refused says why the sender of a request could not be identified, by their own fault and not
// the service's. It is the Err of Answered, see [semel.Events]. An [IdentityFunc] returns one
// to tell the caller more.
type Refused struct {
	// Operation is the route's operation; empty elsewhere. The guard sets it.
	Operation string
	// Challenge is the WWW-Authenticate of the 401. Defaults to Options.Challenge.
	Challenge string
	// Detail tells the caller more, in whole sentences. Optional.
	Detail string
	// Err is the reason, for the operator. Required.
	Err error
}

// Error returns the text of Err.
func (e *Refused) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Refused) Unwrap() error { return e.Err }

// refused turns an error of an identity function into a [Refused], unless it says nothing about
// the caller.
func (h *handler) refused(err error) error {
	e, ours := errors.AsType[*semel.Error](err)
	if err == nil || ours && e.Code == semel.CodeStoreUnavailable {
		return err
	}
	why := &Refused{Err: err}
	if said, ok := errors.AsType[*Refused](err); ok {
		*why = *said
	}
	why.Operation = h.operation
	return why
}

// Caller is who sent a request, as far as anybody can tell.
type Caller struct {
	// Tenant is the verified identity's, or the one that came with [ErrNoIdentity].
	Tenant string
	// Principal is the verified identity; empty if there is none.
	Principal string
	// Credential is the digest of whatever a caller without a verified identity sent to
	// authenticate themselves; empty if they sent nothing.
	Credential string
	// Unproved says that Credential comes from a credential that is signed anew for each try:
	// from the part that names its caller, such as the id of an access key, which the route
	// doesn't name. So anybody could have written it.
	Unproved bool
	// Network is the network that a caller without a verified identity calls from.
	Network netip.Prefix
}

// Name puts the caller into a call that has its Key; share comes from its operation. Every door
// decides like this who owns a call:
//
//   - a verified caller has keys of their own;
//   - a caller with only a credential has keys of their own, too, if the key can be
//     guessed: two honest callers may have chosen the same one;
//   - a key that can't be guessed stays the same call when the credential is renewed,
//     and is bound to the credential that it first came with. See [semel.Call].BoundTo;
//   - a credential that is signed anew for each try identifies its caller by their name in
//     it, and never shows them an outcome. See [semel.Call].Unproved.
func (c Caller) Name(call *semel.Call, share semel.Share) {
	call.Tenant, call.Principal, call.BoundTo, call.Unproved = c.Tenant, c.Principal, "", c.Unproved
	call.Network = c.Network.Addr().As16()
	switch {
	case c.Principal != "":
	case share == semel.ShareTenant || credential.Guessable(call.Key):
		call.Principal = c.Credential
	default:
		call.BoundTo = c.Credential
	}
}

// Caller says who sent a request, by the rule of a route with the defaults. It is for doors
// beside the guard that share its callers. The error is as from an [IdentityFunc], or says that
// the request has no credential.
func (g *Guard) Caller(r *http.Request) (Caller, error) {
	return g.plain.caller(r)
}

// Callers is [Guard.Caller] by the rule of a route: its Credential, Profile and Anonymous.
func (g *Guard) Callers(rt Route) func(r *http.Request) (Caller, error) {
	h := newHandler(g, rt.withDefaults(), semel.Operation{})
	return h.caller
}

var (
	errAnonymous = errors.New("the request has no credential")
	errNowhere   = fmt.Errorf("%w, and its server doesn't say at which address it came in", errAnonymous)
	errForwarded = errors.New("the request has no credential, and came through a proxy")
)

// caller says who sent the request.
func (h *handler) caller(r *http.Request) (who Caller, err error) {
	if f := h.guard.opts.Identity; f != nil {
		who.Tenant, who.Principal, err = f(r)
		if !errors.Is(err, ErrNoIdentity) {
			return who, h.refused(err)
		}
		who.Principal = ""
	}
	who.Network = network.OfClient(r.RemoteAddr)
	if who.Credential, who.Unproved = h.credentials.Digest(r); who.Credential != "" {
		return who, nil
	}
	switch h.route.Anonymous {
	case AnonymousShare:
		return who, nil
	case AnonymousLoopback:
		switch {
		case r.Context().Value(http.LocalAddrContextKey) == nil: // as with frameworks' adaptors
			return Caller{}, h.refused(errNowhere)
		case !network.OnLoopback(r.Context()):
		case Forwarded(r.Header):
			return Caller{}, h.refused(errForwarded)
		default:
			return who, nil
		}
	}
	return Caller{}, h.refused(errAnonymous)
}

// DerivedPrincipal reports whether a principal stands for callers without a verified identity:
// it is empty, or made from a credential's digest. If you give principals to verified callers,
// refuse these, so that nobody gets an unverified caller's keys.
func DerivedPrincipal(principal string) bool {
	return principal == "" || strings.HasPrefix(principal, credential.Prefix)
}

// Forwarded reports whether a proxy says that it has passed the request on for somebody else,
// who may be on another machine.
func Forwarded(header http.Header) bool { return network.Forwarded(header) }

// unidentified answers a request from an unidentified sender.
func (q *request) unidentified(err error) {
	if why, refused := errors.AsType[*Refused](err); refused {
		q.err = why
	} else {
		q.guard.reportError(err)
	}
	p := because(door.CodeUnidentified, "The caller could not be identified, so their key can't be told apart from other people's.")
	switch {
	case errors.Is(err, errAnonymous):
		p.Detail = "The request carries no credential, so its key can't be told apart from other callers' keys. Send " + q.credentials.String() + ". " + q.guard.opts.Advice
		if errors.Is(err, errNowhere) {
			p.Detail += " The server that took the request doesn't say at which address (http.LocalAddrContextKey), so this machine's own callers need one, too."
		}
	case errors.Is(err, errForwarded):
		p.Detail = "The request carries no credential and came through a proxy, so its key can't be told apart from other callers' keys. Send " + q.credentials.String() + "."
	}
	if e, ok := errors.AsType[*semel.Error](err); ok {
		switch e.Code {
		case semel.CodeForbidden:
			p = because(semel.CodeForbidden, "The caller may not use this operation.")
		case semel.CodeStoreUnavailable:
			p = unavailable()
		}
	}
	if p.Status == http.StatusUnauthorized {
		challenge := q.guard.opts.Challenge
		if why, ok := errors.AsType[*Refused](err); ok {
			challenge, p.Detail = cmp.Or(why.Challenge, challenge), cmp.Or(why.Detail, p.Detail)
		}
		// RFC 9110 section 11.6.1 requires a challenge with every 401.
		q.w.Header().Set("Www-Authenticate", challenge)
	}
	q.refuse(p)
}
