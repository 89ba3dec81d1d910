package auth

import (
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Settings say who may call. A caller whom none of these identifies is distinguished by the
// digest of their credential.
type Settings struct {
	// Bearer tokens.
	Tokens []Token `json:"tokens,omitempty"`
	// Issuers of JSON Web Tokens.
	JWT []JWT `json:"jwt,omitempty"`
	// Client certificates.
	MTLS []ClientCert `json:"mtls,omitempty"`
	// Headers in which a proxy in front says who calls.
	TrustedHeader TrustedHeader `json:"trusted_header,omitzero"`
	// Tenant of callers that have none of their own.
	DefaultTenant string `json:"default_tenant,omitzero"`
}

// Configured reports whether there is any method to verify a caller.
func (a *Settings) Configured() bool {
	return len(a.Tokens) > 0 || len(a.JWT) > 0 || len(a.MTLS) > 0 || len(a.TrustedHeader.From) > 0
}

// Operators reports whether any caller can have a role.
func (a *Settings) Operators() bool {
	return slices.ContainsFunc(a.Tokens, func(t Token) bool { return len(t.Roles) > 0 }) ||
		slices.ContainsFunc(a.JWT, func(j JWT) bool { return j.RolesClaim != "" }) ||
		slices.ContainsFunc(a.MTLS, func(m ClientCert) bool { return len(m.Roles) > 0 }) ||
		len(a.TrustedHeader.From) > 0 && a.TrustedHeader.Roles != ""
}

// Token is a caller with a bearer token.
type Token struct {
	// Name of the token in logs and decisions.
	Name string `json:"name" required:"true" unique:"a name is of one token"`
	// SHA-256 of the token, as 64 hexadecimal digits.
	SHA256 string `json:"sha256,omitzero" secret:"digest"`
	// File that has the token itself, instead of sha256. White space around it is ignored.
	TokenFile string `json:"token_file,omitzero"`
	// Tenant of the caller. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Who the caller acts as. Defaults to the name.
	Principal string `json:"principal,omitzero"`
	// What the caller may do beyond their own calls.
	Roles []string `json:"roles,omitempty" enum:"viewer,operator,admin"`
	// Rights of the caller, as the registry of commands names them.
	Rights []string `json:"rights,omitempty"`
}

// JWT is an issuer whose tokens are accepted.
type JWT struct {
	// The iss of its tokens.
	Issuer string `json:"issuer" required:"true" unique:"an issuer has one entry"`
	// What aud must contain.
	Audience string `json:"audience" required:"true"`
	// Accepted signature algorithms.
	Algorithms []string `json:"algorithms" required:"true" enum:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA"`
	// File of the issuer's public keys, a JSON Web Key Set.
	KeysFile string `json:"keys_file,omitzero"`
	// Where the issuer publishes its JSON Web Key Set, instead of keys_file: an https URL, or http on this machine. Keys are fetched again every 15m, and when a token has an unknown key.
	JWKSURL string `json:"jwks_url,omitzero" secret:"url"`
	// Tenant of all callers with its tokens. A token that names another one in tenant_claim is refused.
	Tenant string `json:"tenant,omitzero"`
	// Claim that names the tenant. A token without it is refused, unless tenant is set. Empty: no claim names it, and all callers are in tenant or default_tenant.
	TenantClaim string `json:"tenant_claim" default:"tenant"`
	// Claim that names the principal.
	PrincipalClaim string `json:"principal_claim" default:"sub"`
	// Claim that lists the roles, and the rights that commands ask for. Without it callers have neither.
	RolesClaim string `json:"roles_claim,omitzero"`
	// Values of roles_claim that stand for roles; all others are rights. Without any, viewer, operator and admin stand for themselves.
	Roles []RoleValue `json:"roles,omitempty"`
	// How far the clocks may be apart, up to 5m.
	Leeway strictyaml.Duration `json:"leeway" default:"30s" range:"0s,5m"`
}

// RoleValue is a value of a claim and the role that it stands for.
type RoleValue struct {
	// Value of the claim.
	Value string `json:"value" required:"true"`
	// What a caller with it may do, in their tenant.
	Role string `json:"role" required:"true" enum:"viewer,operator,admin"`
	// Gives the role in all tenants, with the figures and the metrics. A caller who also has a value with a higher role has that one, in their tenant only.
	AllTenants bool `json:"all_tenants,omitzero"`
}

// ClientCert is a caller with a client certificate.
type ClientCert struct {
	// Subject of the certificate, such as CN=shop,O=Acme.
	Subject string `json:"subject" required:"true" unique:"a subject names one caller"`
	// Tenant of the caller. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Who the caller acts as. Defaults to the subject.
	Principal string `json:"principal,omitzero"`
	// What the caller may do beyond their own calls.
	Roles []string `json:"roles,omitempty" enum:"viewer,operator,admin"`
	// Rights of the caller, as the registry of commands names them.
	Rights []string `json:"rights,omitempty"`
}

// TrustedHeader trusts a proxy to say who calls.
type TrustedHeader struct {
	// Networks whose requests are trusted. From anywhere else the headers are removed.
	From []string `json:"from,omitempty"`
	// Header that names the tenant.
	Tenant string `json:"tenant,omitzero" format:"header"`
	// Header that names the principal.
	Principal string `json:"principal,omitzero" format:"header"`
	// Header that lists the roles, and the rights that commands ask for, separated by commas.
	Roles string `json:"roles,omitzero" format:"header"`
}

// Role is what a caller may do beyond their own calls. Each role includes the ones before.
type Role uint8

// The roles.
const (
	NoRole   Role = iota // their own calls only
	Viewer               // look at the records of their tenant
	Operator             // settle, release and purge them
	Admin                // everything
)

var roleNames = []string{"none", "viewer", "operator", "admin"}

// String is the role's name.
func (r Role) String() string { return roleNames[min(r, Admin)] }

// roleOf is the role with a name; [NoRole] if none has it.
func roleOf(name string) Role { return Role(max(slices.Index(roleNames, name), 0)) }

// grant gives the highest role that names stand for. Names that stand for none are rights.
func (id *Identity) grant(names []string, roleOf func(name string) Role) {
	for _, name := range names {
		role := roleOf(name)
		if id.Roles = max(id.Roles, role); role == NoRole {
			id.Rights = append(id.Rights, name)
		}
	}
}

// splitRoles splits a list that is written as one string, with commas or spaces.
func splitRoles(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}
