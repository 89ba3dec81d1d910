package auth

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/safehttp"
)

// maxJWTLen bounds how much is decoded before anything is verified, in bytes.
const maxJWTLen = 16 << 10

// Algorithms are all that an issuer may have. They use public keys, so nobody can sign with a
// key that everybody has (RFC 8725 section 2.1).
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// tokenTypes are the typ of tokens that identify callers. The issuer may sign other
// things, such as logout messages, with the same key (RFC 8725 section 3.11).
var tokenTypes = []string{"", "jwt", "at+jwt", "application/at+jwt"}

type issuer struct {
	settings JWT
	keys     []publicKey // from KeysFile
	remote   *remoteKeys // from JWKSURL; nil without it
	parser   *jwt.Parser
}

// newIssuer reads the issuer's keys, or notes where to fetch them.
func newIssuer(s JWT, defaultTenant string) (*issuer, error) {
	if s.TenantClaim == "" {
		s.Tenant = cmp.Or(s.Tenant, defaultTenant)
	}
	is := &issuer{settings: s, parser: jwt.NewParser(
		jwt.WithValidMethods(s.Algorithms), jwt.WithIssuer(s.Issuer), jwt.WithAudience(s.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(time.Duration(s.Leeway)), jwt.WithStrictDecoding(),
	)}
	if s.JWKSURL != "" {
		is.remote = &remoteKeys{url: s.JWKSURL, fetching: make(chan struct{}, 1), client: safehttp.Client{Timeout: fetchTime, MaxAnswer: maxKeySet}}
		is.remote.set.Store(&keySet{})
		return is, nil
	}
	var err error
	is.keys, err = readKeys(s.KeysFile)
	if err == nil && !slices.ContainsFunc(is.keys, func(k publicKey) bool { return slices.ContainsFunc(s.Algorithms, k.fits) }) {
		err = errors.New("has no key for any of the algorithms")
	}
	return is, err
}

func (a *Authenticator) byJWT(sent string) (Identity, error) {
	if len(sent) > maxJWTLen {
		return Identity{}, bad(invalidToken, "the bearer token is too long")
	}
	// The issuer that the token claims only selects the keys that must prove it.
	claimed := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(sent, claimed); err != nil {
		return Identity{}, bad(invalidToken, tokenFault(err))
	}
	name, err := claimed.GetIssuer()
	is := a.issuers[name]
	if err != nil || is == nil {
		return Identity{}, bad(invalidToken, tokenFault(jwt.ErrTokenInvalidIssuer))
	}
	claims := jwt.MapClaims{}
	switch _, err := is.parser.ParseWithClaims(sent, claims, is.candidates); {
	case errors.Is(err, ErrUnavailable):
		return Identity{}, errNoKeys
	case onlyExpired(err):
		return Identity{}, errExpired
	case err != nil:
		return Identity{}, bad(invalidToken, tokenFault(err))
	}
	return is.identity(claims)
}

// candidates are the keys that may have signed the token: those with its kid, or without
// any. The parser has checked the algorithm.
func (is *issuer) candidates(t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errCritical // RFC 7515 section 4.1.11
	}
	typ, ok := t.Header["typ"]
	if name, isText := typ.(string); ok && (!isText || !slices.Contains(tokenTypes, strings.ToLower(name))) {
		return nil, errTokenType
	}
	kid, ok := t.Header["kid"]
	id, isText := kid.(string)
	if ok && !isText {
		return nil, jwt.ErrTokenMalformed
	}
	if is.remote == nil {
		return matching(is.keys, t.Method.Alg(), id), nil
	}
	set := matching(is.remote.current(), t.Method.Alg(), id)
	if len(set.Keys) == 0 {
		// The issuer may have a newer key than the fetched ones. Everybody who needs it
		// shares the fetch, so the end of this request must not stop it.
		is.remote.fetch(context.Background(), retryEvery)
		set = matching(is.remote.current(), t.Method.Alg(), id)
	}
	if len(is.remote.current()) == 0 || len(set.Keys) == 0 && is.remote.set.Load().failed != nil {
		return nil, errNoKeys // the token can't be judged
	}
	return set, nil
}

// matching are the keys for an algorithm with this kid, or without one; an empty kid matches all.
func matching(keys []publicKey, alg, kid string) (set jwt.VerificationKeySet) {
	for _, k := range keys {
		if k.fits(alg) && (k.kid == kid || k.kid == "" || kid == "") {
			set.Keys = append(set.Keys, k.public)
		}
	}
	return set
}

func (is *issuer) identity(claims jwt.MapClaims) (Identity, error) {
	id := Identity{Tenant: is.settings.Tenant, Method: MethodJWT}
	var ok bool
	if id.Principal, ok = claims[is.settings.PrincipalClaim].(string); !ok || checkPrincipal(id.Principal) != nil {
		return Identity{}, bad(invalidToken, "the token has no principal, or one that can't be used")
	}
	if err := is.tenant(&id, claims); err != nil {
		return Identity{}, err
	}
	if is.settings.RolesClaim == "" {
		return id, nil
	}
	var names []string
	switch roles := claims[is.settings.RolesClaim].(type) {
	case string:
		names = splitRoles(roles)
	case []any:
		for _, role := range roles {
			if name, ok := role.(string); ok {
				names = append(names, name)
			}
		}
	}
	id.grant(names, is.roleOf)
	for _, v := range is.settings.Roles {
		if v.AllTenants && slices.Contains(names, v.Value) {
			id.Everywhere = max(id.Everywhere, roleOf(v.Role))
		}
	}
	return id, nil
}

func (is *issuer) roleOf(value string) (role Role) {
	if len(is.settings.Roles) == 0 {
		return roleOf(value)
	}
	for _, v := range is.settings.Roles {
		if v.Value == value {
			role = max(role, roleOf(v.Role))
		}
	}
	return role
}

// tenant sets the configured tenant, or the token's. Both must agree, and one of them must exist.
func (is *issuer) tenant(id *Identity, claims jwt.MapClaims) error {
	claim := is.settings.TenantClaim
	value, named := claims[claim]
	if claim == "" || !named && id.Tenant != "" {
		return nil
	}
	name, ok := value.(string)
	switch {
	case !ok || name == "" || checkText(name) != nil:
		return bad(invalidToken, "the token has no tenant, or one that can't be used")
	case id.Tenant != "" && name != id.Tenant:
		return bad(invalidToken, "the token names a tenant that its issuer may not name")
	}
	id.Tenant = name
	return nil
}

// onlyExpired reports whether a token of the issuer is wrong in nothing but its age.
func onlyExpired(err error) bool {
	for _, other := range tokenFaults {
		if other != jwt.ErrTokenExpired && errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, jwt.ErrTokenExpired)
}

var (
	errCritical  = errors.New("the token has critical extensions")
	errTokenType = errors.New("the token is of a type that doesn't identify callers")
)

var tokenFaults = []error{
	errCritical, errTokenType, jwt.ErrTokenMalformed, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenExpired,
	jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenRequiredClaimMissing,
	jwt.ErrTokenUnverifiable,
}

// tokenFault says why a token is invalid, without quoting it as the parser's errors may.
func tokenFault(err error) string {
	for _, known := range tokenFaults {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the token is not valid"
}
