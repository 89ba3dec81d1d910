package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// JWT is an issuer of JSON Web Tokens. Its tokens must have an expiry, and this issuer
// and audience.
//
// You trust the issuer to name principals, and tenants if TenantClaim is set. If two
// issuers may give the same principal to different callers, give each issuer its own
// tenant.
type JWT struct {
	// Issuer is the iss of its tokens, exactly. It must be unique.
	Issuer string
	// Audience must be among the values of a token's aud.
	Audience string
	// Algorithms is the allow-list: any of RS256, RS384, RS512, PS256, PS384,
	// PS512, ES256, ES384, ES512 and EdDSA. There is no default.
	Algorithms []string
	// KeysFile has the public keys: a JSON Web Key Set, or PEM blocks with public keys or
	// certificates. Only New reads it.
	KeysFile string
	// JWKSURL is where the issuer publishes its JSON Web Key Set, instead of KeysFile: an
	// https URL, or http on a loopback address. Keys are fetched on first use, again
	// every 15 minutes, and when a token has an unknown kid, but at most twice a minute.
	// If that fails, the last keys stay valid for 24 hours. Redirects aren't followed,
	// and the environment's proxy isn't used.
	JWKSURL string
	// Tenant is the tenant of all callers with tokens of this issuer. A token that names
	// another one in TenantClaim is refused.
	Tenant string
	// TenantClaim is the claim with the tenant, if Tenant doesn't set it. Tokens without
	// the claim, or with an empty one, are then refused.
	TenantClaim string
	// PrincipalClaim is the claim with the principal. Defaults to sub.
	PrincipalClaim string
	// RolesClaim is the claim with the roles: a list of strings, or one string with
	// commas or spaces. Defaults to empty: no roles. No claim makes anybody an admin of
	// all tenants, see [Identity].AllTenants.
	RolesClaim string
	// Roles map values of RolesClaim to roles; all other values are rights. Without
	// Roles, the values viewer, operator and admin are the roles of these names.
	Roles []RoleValue
	// Leeway is how far the issuer's clock may be off. At most 5 minutes.
	Leeway time.Duration
}

// RoleValue is a value of a claim and the role that it stands for.
type RoleValue struct{ Value, Role string }

const (
	maxLeeway = 5 * time.Minute
	// maxJWTLen bounds how much is decoded before anything is verified, in bytes.
	maxJWTLen = 16 << 10
)

// algorithms are those that can be allowed. All of them use public keys, so nobody can
// sign with a key that everybody has (RFC 8725 section 2.1).
var algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// tokenTypes are the typ of tokens that identify callers. The issuer may sign other
// things, such as logout messages, with the same key (RFC 8725 section 3.11).
var tokenTypes = []string{"", "jwt", "at+jwt", "application/at+jwt"}

// issuer is a checked JWT.
type issuer struct {
	settings JWT
	keys     []publicKey // from KeysFile
	remote   *remoteKeys // from JWKSURL; nil without it
	parser   *jwt.Parser
}

func (a *Authenticator) addIssuers(list []JWT, f *faults) {
	for i, s := range list {
		field := fmt.Sprintf("jwt[%d]", i)
		before := len(*f)
		s.PrincipalClaim = cmp.Or(s.PrincipalClaim, "sub")
		if s.Issuer == "" {
			f.add(field+".issuer", errors.New("is empty"))
		} else if a.issuers[s.Issuer] != nil {
			f.add(field+".issuer", fmt.Errorf("%q is named twice", s.Issuer))
		}
		if s.Audience == "" {
			f.add(field+".audience", errors.New("is empty, so tokens for other services would be accepted"))
		}
		if len(s.Algorithms) == 0 {
			f.add(field+".algorithms", errors.New("is empty"))
		}
		for _, alg := range s.Algorithms {
			if !slices.Contains(algorithms, alg) {
				f.add(field+".algorithms", fmt.Errorf("%q is not one of %s", alg, strings.Join(algorithms, ", ")))
			}
		}
		if s.Leeway < 0 || s.Leeway > maxLeeway {
			f.add(field+".leeway", fmt.Errorf("%v is not between 0 and %v", s.Leeway, maxLeeway))
		}
		if err := checkText(s.Tenant); err != nil {
			f.add(field+".tenant", err)
		}
		if len(s.Roles) > 0 && s.RolesClaim == "" {
			f.add(field+".roles", errors.New("need a roles_claim, whose values they map"))
		}
		for j, v := range s.Roles {
			if _, err := ParseRoles([]string{v.Role}); err != nil || v.Value == "" {
				f.add(fmt.Sprintf("%s.roles[%d]", field, j), cmp.Or(err, errors.New("has no value")))
			}
		}
		is := &issuer{settings: s}
		is.addKeys(field, f)
		if len(*f) > before {
			continue
		}
		is.parser = jwt.NewParser(
			jwt.WithValidMethods(s.Algorithms), jwt.WithIssuer(s.Issuer), jwt.WithAudience(s.Audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(s.Leeway), jwt.WithStrictDecoding(),
		)
		a.issuers[s.Issuer] = is
	}
}

// addKeys reads the keys, or checks where to fetch them.
func (is *issuer) addKeys(field string, f *faults) {
	s := &is.settings
	var err error
	if s.JWKSURL != "" {
		if s.KeysFile != "" {
			f.add(field+".keys_file", errors.New("is given together with jwks_url: keep one of them"))
		}
		if is.remote, err = newRemoteKeys(s.JWKSURL); err != nil {
			f.add(field+".jwks_url", err)
		}
		return
	}
	is.keys, err = readKeys(s.KeysFile)
	if err == nil && len(s.Algorithms) > 0 && !slices.ContainsFunc(is.keys, func(k publicKey) bool {
		return slices.ContainsFunc(s.Algorithms, k.fits)
	}) {
		err = errors.New("has no key for any of the algorithms")
	}
	if err != nil {
		f.add(field+".keys_file", err)
	}
}

// byJWT identifies the caller by a token that one of the issuers signed.
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
	if len(is.remote.current()) == 0 {
		return nil, errNoKeys // the token can't be judged
	}
	return set, nil
}

// matching are the keys for an algorithm that have this kid, or none. An empty kid
// matches all.
func matching(keys []publicKey, alg, kid string) (set jwt.VerificationKeySet) {
	for _, k := range keys {
		if k.fits(alg) && (k.kid == kid || k.kid == "" || kid == "") {
			set.Keys = append(set.Keys, k.public)
		}
	}
	return set
}

// identity reads the claims of a verified token.
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
	if len(is.settings.Roles) == 0 {
		id.Roles, id.Rights = knownRoles(names), otherNames(names)
		return id, nil
	}
	for _, name := range names {
		mapped := NoRole
		for _, v := range is.settings.Roles {
			if role, _ := roleByName(v.Role); v.Value == name {
				mapped = max(mapped, role)
			}
		}
		if id.Roles = max(id.Roles, mapped); mapped == NoRole {
			id.Rights = append(id.Rights, name)
		}
	}
	return id, nil
}

// tenant sets the configured tenant, or the one that the token names. If both exist they
// must agree, and one of them must exist.
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

// onlyExpired reports whether a token is wrong in nothing but its age. The signature is
// checked before, so it is one of the issuer's.
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

// tokenFaults are what may be wrong with a token.
var tokenFaults = []error{
	errCritical, errTokenType, jwt.ErrTokenMalformed, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenExpired,
	jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenRequiredClaimMissing,
	jwt.ErrTokenUnverifiable,
}

// tokenFault says what is wrong with a token without quoting it, which the parser's
// errors may do.
func tokenFault(err error) string {
	for _, known := range tokenFaults {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the token is not valid"
}
