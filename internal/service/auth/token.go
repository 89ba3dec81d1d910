package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

type token struct {
	sum [sha256.Size]byte
	id  Identity
}

// NewToken makes a token of 256 random bits, and the digest for the configuration. Its
// prefix makes leaked tokens easy to find.
func NewToken() (token, sha256 string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	token = "semel_" + base64.RawURLEncoding.EncodeToString(b[:])
	return token, HashToken(token)
}

// HashToken returns the SHA-256 of a token, as 64 hexadecimal digits.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// byBearer identifies the caller by the Authorization field (RFC 6750 section 2.1). It
// ignores tokens in bodies and queries, where they end up in logs.
func (a *Authenticator) byBearer(r *http.Request) (Identity, error) {
	fields := r.Header["Authorization"]
	if !a.bearer() || len(fields) == 0 {
		return Identity{}, errNone
	}
	if len(fields) > 1 {
		return Identity{}, bad(invalidRequest, "there is more than one Authorization field")
	}
	scheme, sent, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, errNone
	}
	sent = strings.Trim(sent, " ")
	if sent == "" {
		return Identity{}, bad(invalidRequest, "the bearer token is empty")
	}
	if id, ok := a.byToken(sent); ok {
		return id, nil
	}
	if len(a.issuers) == 0 {
		return Identity{}, bad(invalidToken, "the bearer token is unknown")
	}
	return a.byJWT(sent)
}

// byToken compares with every token, so that the time it takes reveals nothing.
func (a *Authenticator) byToken(sent string) (Identity, bool) {
	sum := sha256.Sum256([]byte(sent))
	found := -1
	for i := range a.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]), i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return a.tokens[found].id, true
}

type certificate struct {
	subject string // in the form of RFC 2253
	id      Identity
}

// byCertificate goes by the client certificate. The first entry that matches wins.
func (a *Authenticator) byCertificate(r *http.Request) (Identity, error) {
	if len(a.certificates) == 0 || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return Identity{}, errNone
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, bad(invalidRequest, "the client certificate was not verified")
	}
	leaf := r.TLS.VerifiedChains[0][0]
	// It was valid when the connection began, which can be long ago.
	if now := time.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return Identity{}, bad(invalidRequest, "the client certificate is not valid at this time")
	}
	subject := subjectOf(leaf)
	for i := range a.certificates {
		if c := &a.certificates[i]; subject != "" && c.subject == subject {
			return c.id, nil
		}
	}
	return Identity{}, bad(invalidRequest, "no configured caller has this client certificate")
}

// subjectOf returns the subject as text, with each part where the certificate has it, or
// nothing if it can't be read. A parsed name forgets the order, and what comes twice.
func subjectOf(cert *x509.Certificate) string {
	var parts pkix.RDNSequence
	if rest, err := asn1.Unmarshal(cert.RawSubject, &parts); err != nil || len(rest) > 0 {
		return ""
	}
	return parts.String()
}

type trustedHeader struct {
	from                     []netip.Prefix
	tenant, principal, roles string // canonical, may be empty
}

func newTrustedHeader(s TrustedHeader) *trustedHeader {
	if len(s.From) == 0 {
		return nil
	}
	h := &trustedHeader{
		tenant: http.CanonicalHeaderKey(s.Tenant), principal: http.CanonicalHeaderKey(s.Principal), roles: http.CanonicalHeaderKey(s.Roles),
	}
	for _, text := range s.From {
		h.from = append(h.from, netip.MustParsePrefix(text))
	}
	return h
}

func (h *trustedHeader) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false // a Unix socket, which has no address
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(h.from, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// byHeader identifies the caller by a trusted proxy's fields, which count from nobody else.
func (a *Authenticator) byHeader(r *http.Request) (Identity, error) {
	h := a.header
	if h == nil || !h.trusts(r.RemoteAddr) {
		return Identity{}, errNone
	}
	present := 0
	for _, name := range h.names() {
		switch n := len(r.Header[name]); {
		case n > 1:
			return Identity{}, bad(invalidRequest, "there is more than one field "+name)
		case n == 1:
			present++
		}
	}
	if present == 0 {
		return Identity{}, errNone
	}
	id := Identity{Principal: r.Header.Get(h.principal), Method: MethodHeader}
	if err := checkPrincipal(id.Principal); err != nil {
		return Identity{}, bad(invalidRequest, "the field "+h.principal+" "+err.Error())
	}
	if h.tenant != "" {
		if _, ok := r.Header[h.tenant]; !ok {
			return Identity{}, bad(invalidRequest, "the field "+h.tenant+" is missing")
		}
		id.Tenant = r.Header.Get(h.tenant)
		if err := checkText(id.Tenant); err != nil {
			return Identity{}, bad(invalidRequest, "the field "+h.tenant+" "+err.Error())
		}
	}
	if h.roles != "" {
		id.grant(splitRoles(r.Header.Get(h.roles)), roleOf)
	}
	return id, nil
}

func (h *trustedHeader) names() []string {
	return slices.DeleteFunc([]string{h.tenant, h.principal, h.roles}, func(name string) bool { return name == "" })
}

// IdentityHeaders returns the header fields that say who calls, in canonical form. Only
// the trusted proxy may set them, and no caller may name them in Connection.
func (a *Authenticator) IdentityHeaders() []string {
	if a.header == nil {
		return nil
	}
	return a.header.names()
}
