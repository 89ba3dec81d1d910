package auth

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
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
	Algorithms []string `json:"algorithms" required:"true" unique:"keep one of them" enum:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA"`
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
	Operator             // settle, release, confirm and purge them
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

// Check reports what is wrong with the settings, which are at a path, beside what their tags
// don't allow. It reads no files.
func (s *Settings) Check(r *strictyaml.Report, path string) {
	c := checker{r, path}
	c.text("default_tenant", s.DefaultTenant)
	c.tokens(s.Tokens)
	for i := range s.JWT {
		c.issuer(fmt.Sprintf("jwt[%d]", i), &s.JWT[i])
	}
	for i, m := range s.MTLS {
		at := fmt.Sprintf("mtls[%d]", i)
		c.caller(at, "subject", m.Tenant, m.Principal)
		switch {
		case m.Subject == "":
		case !strings.Contains(m.Subject, "="):
			c.bad(at+".subject", "write CN="+m.Subject, "%q is not a subject such as CN=shop,O=Acme", m.Subject)
		case strings.Contains(m.Subject, ", ") || strings.Contains(m.Subject, " = "):
			c.bad(at+".subject", "write it as in RFC 2253, such as CN=shop,O=Acme", "a subject with spaces at a comma or an equals sign matches nothing")
		}
	}
	c.trustedHeader(&s.TrustedHeader)
}

type checker struct {
	*strictyaml.Report
	path string // of the settings
}

func (c *checker) bad(at, hint, format string, args ...any) {
	c.Add(c.path+"."+at, fmt.Sprintf(format, args...), hint)
}

func (c *checker) text(at, text string) {
	if err := checkText(text); err != nil {
		c.bad(at, "", "%s %v", at[strings.LastIndexByte(at, '.')+1:], err)
	}
}

// caller checks what all configured callers have. Without a principal of its own a caller has
// that of another setting, which must be there.
func (c *checker) caller(at, otherwise, tenant, principal string) {
	c.text(at+".tenant", tenant)
	if err := checkPrincipal(principal); err != nil && !c.Faulty[c.path+"."+at+"."+otherwise] {
		c.bad(at+".principal", "write another principal", "the principal %v", err)
	}
}

func (c *checker) tokens(tokens []Token) {
	digests := map[string]string{HashToken(""): "nobody"}
	for i, t := range tokens {
		at := fmt.Sprintf("tokens[%d]", i)
		c.caller(at, "name", t.Tenant, t.Principal)
		digest := strings.ToLower(t.SHA256)
		first, twice := digests[digest]
		const hint = "make it with: printf %s TOKEN | sha256sum"
		switch _, err := hex.DecodeString(digest); {
		case digest == "" && c.Faulty[c.path+"."+at+".token_file"]:
		case len(digest) != 64:
			c.bad(at+".sha256", hint, "the digest has %d characters, not 64 hexadecimal digits", len(digest))
		case err != nil:
			c.bad(at+".sha256", hint, "the digest has characters that are not hexadecimal digits")
		case first == "nobody":
			c.bad(at+".sha256", hint, "the digest is that of an empty token")
		case twice:
			c.bad(at+".sha256", "a token names one caller", "%s.%s has the same token", c.path, first)
		default:
			digests[digest] = at
		}
	}
}

func (c *checker) issuer(at string, j *JWT) {
	c.text(at+".tenant", j.Tenant)
	keys := c.path + "." + at
	switch {
	case c.Faulty[keys+".keys_file"], c.Faulty[keys+".jwks_url"]:
	case j.KeysFile != "" && j.JWKSURL != "":
		c.bad(at+".jwks_url", "keep one of them", "both keys_file and jwks_url are given")
	case j.JWKSURL != "":
		if err := checkKeysURL(j.JWKSURL); err != nil {
			c.bad(at+".jwks_url", "", "the URL %s", err)
		}
	case j.KeysFile == "":
		c.bad(at+".jwks_url", "write where the issuer publishes its keys, or a file in keys_file", "neither jwks_url nor keys_file is given")
	}
	if len(j.Roles) > 0 && j.RolesClaim == "" {
		c.bad(at+".roles", "name the claim in roles_claim", "no claim has these values")
	}
	if j.PrincipalClaim == "" {
		c.bad(at+".principal_claim", "", "principal_claim is empty")
	}
}

var otherUses = []string{"Authorization", "Connection", "Content-Length", "Cookie", "Host", "Idempotency-Key", "Transfer-Encoding"}

func (c *checker) trustedHeader(h *TrustedHeader) {
	const path = "trusted_header"
	for i, from := range h.From {
		at := fmt.Sprintf("%s.from[%d]", path, i)
		network, err := netip.ParsePrefix(from)
		if addr, bare := netip.ParseAddr(from); bare == nil {
			c.bad(at, fmt.Sprintf("write %s/%d", addr, addr.BitLen()), "%q is an address, not a network", from)
			continue
		}
		switch {
		case err != nil:
			c.bad(at, "write such as 10.0.0.0/8", "%q is not a network in CIDR form", from)
		case network.Bits() == 0:
			c.bad(at, "name the addresses of the proxy", "%s covers all addresses, so anybody could claim to be anyone", from)
		case network.Addr().Is4In6():
			c.bad(at, "write the IPv4 network", "%s is written as IPv6", from)
		case network.Masked() != network:
			c.bad(at, "write "+network.Masked().String(), "%s has bits set after its prefix", from)
		}
	}
	seen := map[string]bool{}
	for _, field := range [...]struct{ name, header string }{{"tenant", h.Tenant}, {"principal", h.Principal}, {"roles", h.Roles}} {
		at, canonical := path+"."+field.name, http.CanonicalHeaderKey(field.header)
		switch {
		case field.header == "":
			continue
		case len(h.From) == 0 && c.Origins.Written(c.path+"."+at):
			c.bad(path+".from", "name the proxy's addresses, such as 10.0.0.0/8", "from is missing, so the headers would never be trusted")
		case strings.Trim(strings.ToLower(field.header), "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			c.bad(at, "use letters, digits and hyphens", "%q can't be told from other headers by every proxy", field.header)
		case slices.Contains(otherUses, canonical):
			c.bad(at, "", "%q has another use", field.header)
		case seen[canonical]:
			c.bad(at, "", "%q is named twice", field.header)
		}
		seen[canonical] = true
	}
	if len(h.From) > 0 && h.Principal == "" {
		c.bad(path+".principal", "such as X-Principal", "principal is missing, so nobody could be told apart")
	}
}
