package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Method is how a caller proved who it is.
type Method string

// The methods.
const (
	MethodNone   Method = "none"   // it did not
	MethodToken  Method = "token"  // static bearer token
	MethodJWT    Method = "jwt"    // JSON Web Token
	MethodMTLS   Method = "mtls"   // client certificate
	MethodHeader Method = "header" // headers of a trusted proxy
)

// Identity is who calls.
type Identity struct {
	// Tenant may be empty, which is a tenant like any other.
	Tenant string
	// Principal is unique within the tenant. It is never empty if Method is
	// anything but [MethodNone].
	Principal string
	// Roles is what the caller may do. [NoRole] is enough for data routes.
	Roles Roles
	// Rights are further names of what the caller may do, which mean something to
	// the doors that look at them, such as commands.
	Rights []string
	// Method is how the caller proved it.
	Method Method
}

// AllTenants reports whether the caller is an admin of all tenants: one that the
// configuration itself names, with the role admin and without a tenant. What an
// issuer or a proxy says of a caller never comes to that.
func (id *Identity) AllTenants() bool {
	return id.Roles.Allows(Admin) && id.Tenant == "" && (id.Method == MethodToken || id.Method == MethodMTLS)
}

// Settings configures an [Authenticator]. The zero value knows no method.
type Settings struct {
	Tokens        []Token
	JWT           []JWT
	MTLS          []Certificate
	TrustedHeader TrustedHeader
	// DefaultTenant is the tenant of callers without a verified identity, on
	// routes that accept those.
	DefaultTenant string
}

// Authenticator tells who sent a request. It is immutable, so all methods may be
// called concurrently; a change of settings or of key files takes a new one. Keys that
// are fetched from URLs change by themselves.
type Authenticator struct {
	tokens        []token
	issuers       map[string]*issuer
	certificates  []certificate
	header        *trustedHeader
	defaultTenant string
}

// New checks the settings and reads the key files. The error names every fault
// at once, each on a line of its own with the field that has it.
func New(s Settings) (*Authenticator, error) {
	a := &Authenticator{defaultTenant: s.DefaultTenant, issuers: map[string]*issuer{}}
	var f faults
	if err := checkText(s.DefaultTenant); err != nil {
		f.add("default_tenant", err)
	}
	a.addTokens(s.Tokens, &f)
	a.addIssuers(s.JWT, &f)
	a.addCertificates(s.MTLS, &f)
	a.addTrustedHeader(s.TrustedHeader, &f)
	if err := errors.Join(f...); err != nil {
		return nil, err
	}
	return a, nil
}

// Configured reports whether there is any method at all. Without one,
// Authenticate finds no credential in any request.
func (a *Authenticator) Configured() bool {
	return a.bearer() || len(a.certificates) > 0 || a.header != nil
}

// bearer reports whether a bearer token means anything here.
func (a *Authenticator) bearer() bool { return len(a.tokens) > 0 || len(a.issuers) > 0 }

// Authenticate tells who sent the request. The error is [ErrNoCredential] if the
// request has nothing that a configured method looks at, [ErrBadCredential] if it has
// but that is not good, and [ErrUnavailable] if that can't be told now; [Challenge] has
// the WWW-Authenticate of the first two. The request stays as it is.
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

// Known is the identity that the request's context carries (see [NewContext]), or that
// Authenticate finds: nobody is authenticated twice for one request.
func (a *Authenticator) Known(r *http.Request) (Identity, error) {
	if id, ok := FromContext(r.Context()); ok {
		return id, nil
	}
	return a.Authenticate(r)
}

// HTTPIdentity tells a guard who sent a request, as Known does. A request without
// a credential of a configured method is left to the default rule, in the default
// tenant: its principal is the digest of what the route calls its credential. So
// callers of an upstream that does its own authentication are kept apart too. A bad
// credential is refused.
func (a *Authenticator) HTTPIdentity() semelhttp.IdentityFunc {
	return func(r *http.Request) (tenant, principal string, err error) {
		id, err := a.Known(r)
		switch {
		case errors.Is(err, ErrNoCredential):
			return a.defaultTenant, "", semelhttp.ErrNoIdentity
		case errors.Is(err, ErrUnavailable):
			return "", "", &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
		case err != nil:
			return "", "", err
		case id.Method == MethodNone:
			return a.defaultTenant, "", semelhttp.ErrNoIdentity
		}
		return id.Tenant, id.Principal, nil
	}
}

type contextKey struct{}

// NewContext carries an identity that Authenticate found, so that it need not be
// found again for the same request.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns the identity that NewContext put into ctx, if any.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// maxNameLen is the longest tenant or principal that the engine takes, in bytes.
const maxNameLen = 256

func checkText(s string) error {
	switch {
	case len(s) > maxNameLen:
		return fmt.Errorf("is longer than %d bytes", maxNameLen)
	case !utf8.ValidString(s):
		return errors.New("is not valid UTF-8")
	}
	for _, c := range s {
		if unicode.IsControl(c) {
			return errors.New("has a control character")
		}
	}
	return nil
}

func checkPrincipal(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case semelhttp.DerivedPrincipal(s):
		return errors.New("begins like the principals of callers without a verified identity")
	}
	return checkText(s)
}

// faults are what is wrong with the settings.
type faults []error

func (f *faults) add(field string, err error) { *f = append(*f, fmt.Errorf("%s: %w", field, err)) }

// member checks what the settings of every fixed member have in common.
func (f *faults) member(field, tenant, principal string, names, rights []string) Identity {
	if err := checkText(tenant); err != nil {
		f.add(field+".tenant", err)
	}
	if err := checkPrincipal(principal); err != nil {
		f.add(field+".principal", err)
	}
	roles, err := ParseRoles(names)
	if err != nil {
		f.add(field+".roles", err)
	}
	return Identity{Tenant: tenant, Principal: principal, Roles: roles, Rights: rights}
}
