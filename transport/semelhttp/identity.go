package semelhttp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
)

// IdentityFunc tells who sent a request, as verified by whatever authenticates
// requests outside of the guard. It must not fall back to a constant: all callers
// that share a principal share their keys, and get each other's answers.
//
// [ErrNoIdentity] says that nothing was sent that could be verified. The request is
// then taken as without an IdentityFunc, by the digest of what Route.Credential
// names and by the rule of Route.Anonymous, within the tenant that came with the
// error. A function that verifies credentials must never return it for one that
// turned out bad, nor give anybody a principal that [DerivedPrincipal] reports.
//
// Any other error refuses the request: with 403 if it is a [semel.Error] with
// [semel.CodeForbidden], with 503 if it has [semel.CodeStoreUnavailable],
// otherwise with 401. Its text is not shown.
type IdentityFunc func(r *http.Request) (tenant, principal string, err error)

// Anonymous says what becomes of a request without a credential.
type Anonymous string

// The rules for anonymous requests.
const (
	// AnonymousLoopback accepts them if they were received on a loopback
	// address or a Unix socket, and refuses them otherwise. The default. Behind
	// a proxy on the same machine every request looks like that.
	AnonymousLoopback Anonymous = "loopback"
	// AnonymousShare lets all of them share one principal: whoever knows a key
	// and its payload gets the answer.
	AnonymousShare Anonymous = "share"
	// AnonymousRefuse accepts none, wherever they come from.
	AnonymousRefuse Anonymous = "refuse"
)

// ErrNoIdentity is how an [IdentityFunc] leaves a request to the default rule.
var ErrNoIdentity = errors.New("semelhttp: the caller has no verified identity")

// Caller tells whose keys a request uses, by the rule of a route with the defaults.
// It is for doors beside the guard that share its callers. The error is that of
// [IdentityFunc], or says that the request has no credential.
func (g *Guard) Caller(r *http.Request) (tenant, principal string, err error) {
	return g.plain.identify(r)
}

var errAnonymous = errors.New("the request has no credential")

// identify tells whose keys the request uses.
func (h *handler) identify(r *http.Request) (tenant, principal string, err error) {
	if f := h.guard.opts.Identity; f != nil {
		tenant, principal, err = f(r)
		if !errors.Is(err, ErrNoIdentity) {
			return tenant, principal, err
		}
	}
	name, value, ok := h.credential(r)
	if ok {
		return tenant, credentialDigest(name, value), nil
	}
	switch h.route.Anonymous {
	case AnonymousShare:
		return tenant, "", nil
	case AnonymousLoopback:
		if receivedOnLoopback(r.Context()) {
			return tenant, "", nil
		}
	}
	return "", "", errAnonymous
}

// credential is what the caller sent to say who it is.
func (h *handler) credential(r *http.Request) (name, value string, ok bool) {
	if h.cookie != "" {
		c, err := r.Cookie(h.cookie)
		if err != nil || c.Value == "" {
			return "", "", false
		}
		return h.cookie, c.Value, true
	}
	fields := r.Header[h.credentialHeader]
	switch len(fields) {
	case 0:
		return "", "", false
	case 1:
		return h.credentialHeader, fields[0], fields[0] != ""
	}
	return h.credentialHeader, strings.Join(fields, "\x00"), true
}

// credentialDigest names a caller by its credential without keeping that. The
// store sees the digest only.
func credentialDigest(name, value string) string {
	var stack [512]byte
	b := append(stack[:0], "semel-credential-1"...)
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = append(b, value...)
	sum := sha256.Sum256(b)
	var text [len(digestPrefix) + 43]byte
	copy(text[:], digestPrefix)
	base64.RawURLEncoding.Encode(text[len(digestPrefix):], sum[:])
	return string(text[:])
}

const digestPrefix = "credential:"

// DerivedPrincipal reports whether this is a principal that belongs to callers
// without a verified identity: none, or one that is made of a credential's digest.
// Whoever gives principals to verified callers refuses these, so that the two
// never meet.
func DerivedPrincipal(principal string) bool {
	return principal == "" || strings.HasPrefix(principal, digestPrefix)
}

// receivedOnLoopback reports whether only programs of this machine can have sent
// the request.
func receivedOnLoopback(ctx context.Context) bool {
	switch addr := ctx.Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// refuseIdentity answers a request whose sender could not be identified.
func (h *handler) refuseIdentity(w http.ResponseWriter, err error) {
	p := problem{status: http.StatusUnauthorized, code: CodeUnidentified, title: "Caller not identified"}
	p.detail = "The caller could not be identified, so its key can't be told apart from those of others."
	if errors.Is(err, errAnonymous) {
		p.detail = "The request carries no credential, so its key can't be told apart from those of other callers. Send " + h.credentialName() + "."
	}
	if e, ok := errors.AsType[*semel.Error](err); ok {
		switch e.Code {
		case semel.CodeForbidden:
			p.status, p.code, p.title, p.detail = http.StatusForbidden, semel.CodeForbidden, "Forbidden", "The caller may not use this operation."
		case semel.CodeStoreUnavailable:
			p = unavailable()
		}
	}
	if p.status == http.StatusUnauthorized {
		// RFC 9110 section 11.6.1 wants a challenge with every 401.
		w.Header().Set("Www-Authenticate", h.guard.opts.Challenge)
	}
	h.refuse(w, p)
}

func (h *handler) credentialName() string {
	if h.cookie != "" {
		return "the cookie " + h.cookie
	}
	return "the header " + h.credentialHeader
}
