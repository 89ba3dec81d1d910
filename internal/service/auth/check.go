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
	for k, a := range j.Algorithms {
		if a != "" && slices.Index(j.Algorithms, a) < k {
			c.bad(fmt.Sprintf("%s.algorithms[%d]", at, k), "keep one of them", "%s is given twice", a)
		}
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
