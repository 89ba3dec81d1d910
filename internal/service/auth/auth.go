package auth

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
)

// Method is how a caller proved their identity.
type Method string

// The methods.
const (
	MethodNone   Method = "none"   // they didn't
	MethodToken  Method = "token"  // static bearer token
	MethodJWT    Method = "jwt"    // JSON Web Token
	MethodMTLS   Method = "mtls"   // client certificate
	MethodHeader Method = "header" // headers of a trusted proxy
)

// Identity says who calls.
type Identity struct {
	// Tenant may be empty, which is a tenant like any other.
	Tenant string
	// Principal is unique within the tenant. It is only empty if Method is [MethodNone].
	Principal string
	// Roles is what the caller may do. [NoRole] is enough for data routes.
	Roles Role
	// Everywhere is the highest role that the caller has in all tenants, by all_tenants.
	Everywhere Role
	// Rights are further permissions of the caller. They mean something only to some
	// doors, such as commands.
	Rights []string
	// Method is how the caller proved their identity.
	Method Method
}

// AllTenants reports whether the caller's role is for all tenants. The configuration itself
// names such a caller, as an admin without a tenant, or the value of a claim that says so.
func (id *Identity) AllTenants() bool {
	return id.Roles == Admin && id.Named() || id.Roles > NoRole && id.Roles == id.Everywhere
}

// Named reports whether the configuration itself names the caller, without a tenant.
func (id *Identity) Named() bool {
	return id.Tenant == "" && (id.Method == MethodToken || id.Method == MethodMTLS)
}

// Authenticator finds out who sent a request. It is immutable, so all methods may be
// called concurrently. After a change of settings or key files, make a new one. Keys from
// URLs are refreshed.
type Authenticator struct {
	tokens        []token
	issuers       map[string]*issuer
	certificates  []certificate
	header        *trustedHeader
	defaultTenant string
}

// New checks the settings, as [Settings.Check] does, and reads the key files. The error has all
// faults, each on its own line with the name of its setting.
func New(s Settings) (*Authenticator, error) {
	r := strictyaml.NewReport("")
	if s.Check(r, "auth"); len(r.List) > 0 {
		return nil, r.Sorted()
	}
	a := &Authenticator{defaultTenant: s.DefaultTenant, issuers: map[string]*issuer{}, header: newTrustedHeader(s.TrustedHeader)}
	for i := range s.Tokens {
		t := &s.Tokens[i]
		entry := token{id: member(t.Tenant, t.Principal, MethodToken, t.Roles, t.Rights)}
		_, _ = hex.Decode(entry.sum[:], []byte(t.SHA256)) // it was checked
		a.tokens = append(a.tokens, entry)
	}
	var errs []error
	for i, j := range s.JWT {
		is, err := newIssuer(j, s.DefaultTenant)
		if err != nil {
			errs = append(errs, fmt.Errorf("jwt[%d].keys_file: %w", i, err))
		}
		a.issuers[j.Issuer] = is
	}
	for _, c := range s.MTLS {
		a.certificates = append(a.certificates, certificate{c.Subject, member(c.Tenant, c.Principal, MethodMTLS, c.Roles, c.Rights)})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

func member(tenant, principal string, method Method, roles, rights []string) Identity {
	id := Identity{Tenant: tenant, Principal: principal, Rights: rights, Method: method}
	for _, name := range roles {
		id.Roles = max(id.Roles, roleOf(name))
	}
	return id
}

// Configured reports whether there is any method. Without one, Authenticate finds no
// credential in any request.
func (a *Authenticator) Configured() bool {
	return a.bearer() || len(a.certificates) > 0 || a.header != nil
}

func (a *Authenticator) bearer() bool { return len(a.tokens) > 0 || len(a.issuers) > 0 }

// Authenticate finds out who sent the request. The error is [ErrNoCredential] if the
// request has no credential of a configured method, [ErrBadCredential] if it has an
// invalid one, and [ErrUnavailable] if it can't be checked now. [Challenge] returns the
// WWW-Authenticate for the first two. Authenticate doesn't change the request.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) {
	found := Identity{Method: MethodNone}
	for _, method := range [...]func(*http.Request) (Identity, error){a.byBearer, a.byCertificate, a.byHeader} {
		id, err := method(r)
		switch {
		case errors.Is(err, ErrNoCredential):
			continue
		case err != nil:
			return Identity{Method: MethodNone}, err
		case found.Method == MethodNone:
			found = id
		case found.Tenant != id.Tenant || found.Principal != id.Principal:
			return Identity{Method: MethodNone}, bad(invalidRequest, "the credentials of the request name different callers")
		}
	}
	if found.Method == MethodNone {
		return found, errNone
	}
	return found, nil
}

// Known is the identity in the request's context (see [NewContext]), or what Authenticate
// returns, so that each request is authenticated once.
func (a *Authenticator) Known(r *http.Request) (Identity, error) {
	if id, ok := FromContext(r.Context()); ok {
		return id, nil
	}
	return a.Authenticate(r)
}

// HTTPIdentity says who sent a request, as Known does, for a guard. It leaves a request without
// a credential of a configured method to the default rule, in the default tenant: the principal
// is then the digest of what the route calls its credential. So callers stay apart even if the
// upstream authenticates them itself. It refuses an invalid credential.
func (a *Authenticator) HTTPIdentity() semelhttp.IdentityFunc {
	return func(r *http.Request) (tenant, principal string, err error) {
		id, err := a.Known(r)
		switch {
		case errors.Is(err, ErrNoCredential), err == nil && id.Method == MethodNone:
			return a.defaultTenant, "", semelhttp.ErrNoIdentity
		case errors.Is(err, ErrUnavailable):
			return "", "", &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
		case err != nil:
			why := &semelhttp.Refused{Challenge: Challenge(err), Err: err}
			if e, ok := errors.AsType[*Error](err); ok {
				why.Detail = e.Detail
			}
			return "", "", why
		}
		return id.Tenant, id.Principal, nil
	}
}

type contextKey struct{}

// NewContext adds the identity that Authenticate returned to a context, so that the
// request isn't authenticated again.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns the identity that NewContext put into ctx, if any.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

func checkText(s string) error {
	switch {
	case len(s) > store.MaxNameLen:
		return fmt.Errorf("is longer than %d bytes", store.MaxNameLen)
	case !utf8.ValidString(s):
		return errors.New("is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("has a control character")
	}
	return nil
}

// ownPrincipals are the names under which parts of the service act, such as the doors for
// webhooks, and anybody who uses a listener that is open to this machine. Names that begin with
// "semel." are such, too.
var ownPrincipals = []string{"semel", "local", "webhook", "activitypub", "whatsapp"}

// checkPrincipal refuses what can't be the name of a caller, however they proved it: nobody
// may have the keys of a part of the service, or pass for it in what people read.
func checkPrincipal(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case semelhttp.DerivedPrincipal(s):
		return errors.New("begins like the principals of callers without a verified identity")
	case slices.Contains(ownPrincipals, s), strings.HasPrefix(s, "semel."):
		return errors.New("is the name of a part of the service")
	}
	return checkText(s)
}

// The errors of Authenticate. Compare with errors.Is.
var (
	// ErrNoCredential: the request has no credential of a configured method.
	ErrNoCredential = errors.New("no credential")
	// ErrBadCredential: it has one that is unknown, expired, forged, ambiguous or not for
	// this server.
	ErrBadCredential = errors.New("bad credential")
	// ErrUnavailable: it has one that can't be checked now, because the issuer's keys
	// can't be fetched. It makes sense to ask again later.
	ErrUnavailable = errors.New("credentials can't be checked")
)

// Error says why a caller was not identified. Its text never quotes a credential, so you
// may log it. It unwraps to one of the sentinels.
type Error struct {
	// Reason is for the operator. It may be empty.
	Reason string
	// Challenge is the WWW-Authenticate of the 401 (RFC 9110 section 11.6.1, RFC 6750
	// section 3). It doesn't reveal the reason.
	Challenge string
	// Detail is what the caller may be told, in whole sentences; empty if that is no more
	// than the challenge says.
	Detail string

	kind error
}

// Error gives the kind and the reason.
func (e *Error) Error() string {
	if e.Reason == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.Reason
}

// Unwrap returns [ErrNoCredential], [ErrBadCredential] or [ErrUnavailable].
func (e *Error) Unwrap() error { return e.kind }

const baseChallenge = `Bearer realm="semel"`

// Challenge is the WWW-Authenticate for an error of Authenticate, or for any other error.
func Challenge(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Challenge
	}
	return baseChallenge
}

// The codes of RFC 6750 section 3.1 that are used.
const (
	invalidRequest = "invalid_request"
	invalidToken   = "invalid_token"
)

var errNone error = &Error{kind: ErrNoCredential, Challenge: baseChallenge}

var errNoKeys error = &Error{kind: ErrUnavailable, Reason: "the keys of the token's issuer can't be fetched", Challenge: baseChallenge}

// errExpired is for a token that was good once. To know that helps nobody but its bearer,
// who renews it.
var errExpired error = &Error{
	kind: ErrBadCredential, Reason: "the token has expired",
	Challenge: baseChallenge + `, error="` + invalidToken + `", error_description="The token has expired"`,
	Detail:    "The token has expired. Renew it, and send the same request again.",
}

func bad(code, reason string) error {
	return &Error{kind: ErrBadCredential, Reason: reason, Challenge: baseChallenge + `, error="` + code + `"`}
}
