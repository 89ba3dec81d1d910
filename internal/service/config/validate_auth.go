package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/strictyaml"
)

// auth checks who may call.
func (v *validator) auth() {
	v.tokens()
	for path, j := range items("auth.jwt", v.c.Auth.JWT) {
		v.keys(path, j)
		if len(j.Roles) > 0 && j.RolesClaim == "" {
			v.bad(path+".roles", "name the claim in roles_claim", "no claim has these values")
		}
		if j.PrincipalClaim == "" {
			v.bad(path+".principal_claim", "", "principal_claim is empty")
		}
		for k, a := range j.Algorithms {
			if a != "" && slices.Index(j.Algorithms, a) < k {
				v.bad(fmt.Sprintf("%s.algorithms[%d]", path, k), "keep one of them", "%s is given twice", a)
			}
		}
	}
	v.clientCerts()
	v.trustedHeader()
}

// keys checks where an issuer's keys come from.
func (v *validator) keys(path string, j *JWT) {
	switch {
	case v.Faulty[path+".keys_file"], v.Faulty[path+".jwks_url"]:
	case j.KeysFile != "" && j.JWKSURL != "":
		v.bad(path+".jwks_url", "keep one of them", "both keys_file and jwks_url are given")
	case j.JWKSURL != "":
		if err := auth.CheckKeysURL(j.JWKSURL); err != nil {
			v.bad(path+".jwks_url", "", "the URL %s", err)
		}
	case j.KeysFile == "":
		v.bad(path+".jwks_url", "write where the issuer publishes its keys, or a file in keys_file", "neither jwks_url nor keys_file is given")
	}
}

func (v *validator) tokens() {
	digests := map[string]string{}
	for path, t := range items("auth.tokens", v.c.Auth.Tokens) {
		if t.SHA256 == "" {
			continue
		}
		if raw, err := hex.DecodeString(t.SHA256); err != nil || len(raw) != 32 {
			what := fmt.Sprintf("has %d characters, not 64 hexadecimal digits", len(t.SHA256))
			if len(t.SHA256) == 64 {
				what = "has characters that are not hexadecimal digits"
			}
			v.bad(path+".sha256", "make it with: printf %s TOKEN | sha256sum", "the digest %s", what)
			continue
		}
		sum := strings.ToLower(t.SHA256)
		t.SHA256 = sum
		if first, twice := digests[sum]; twice {
			v.bad(path+".sha256", "a token names one caller", "%s has the same token", first)
		}
		digests[sum] = path
	}
}

// clientCerts checks that some listener asks for certificates.
func (v *validator) clientCerts() {
	certs := v.c.Auth.MTLS
	if len(certs) > 0 && v.c.Listen.TLS.ClientCA == "" && v.c.Admin.TLS.ClientCA == "" {
		v.bad("auth.mtls", "add client_ca to listen.tls or admin.tls", "no listener asks for client certificates")
	}
	for path, m := range items("auth.mtls", certs) {
		if m.Subject != "" && !strings.Contains(m.Subject, "=") {
			v.bad(path+".subject", "write CN="+m.Subject, "%q is not a subject such as CN=shop,O=Acme", m.Subject)
		}
	}
}

func (v *validator) trustedHeader() {
	h, path := v.c.Auth.TrustedHeader, "auth.trusted_header"
	for i, from := range h.From {
		at := fmt.Sprintf("%s.from[%d]", path, i)
		if v.Origins.Of(path+".from").Kind != strictyaml.FromFile {
			at = path + ".from"
		}
		network, err := netip.ParsePrefix(from)
		if addr, bare := netip.ParseAddr(from); bare == nil {
			v.bad(at, fmt.Sprintf("write %s/%d", addr, addr.BitLen()), "%q is an address, not a network", from)
			continue
		}
		switch {
		case err != nil:
			v.bad(at, "write such as 10.0.0.0/8", "%q is not a network in CIDR form", from)
		case network.Bits() == 0:
			v.bad(at, "name the addresses of the proxy", "%s covers all addresses, so anybody could claim to be anyone", from)
		case network.Masked() != network:
			v.bad(at, "write "+network.Masked().String(), "%s has bits set after its prefix", from)
		}
	}
	for name, header := range map[string]string{"tenant": h.Tenant, "principal": h.Principal, "roles": h.Roles} {
		if header != "" && len(h.From) == 0 && v.Origins.Written(path+"."+name) {
			v.bad(path+".from", "name the proxy's addresses, such as 10.0.0.0/8", "from is missing, so the headers would never be trusted")
		}
	}
	if len(h.From) > 0 && h.Principal == "" {
		v.bad(path+".principal", "such as X-Principal", "principal is missing, so nobody could be told apart")
	}
}
