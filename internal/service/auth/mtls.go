package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Certificate identifies a caller by the client certificate of the TLS connection, which
// must have been verified against the listener's authorities. Set exactly one of Subject,
// URI and DNS.
type Certificate struct {
	// Subject is the whole distinguished name in the form of RFC 2253, as
	// "openssl x509 -noout -subject -nameopt RFC2253" writes it: the parts in the order of the
	// certificate, from the last, without spaces after commas, such as "CN=shop,O=Acme".
	Subject string
	// URI is one of the certificate's alternative names, such as a SPIFFE id.
	URI string
	// DNS is one of the certificate's alternative names, without wildcards.
	DNS               string
	Tenant, Principal string
	Roles, Rights     []string
}

// certificate is a checked Certificate.
type certificate struct {
	subject, uri, dns string
	id                Identity
}

func (a *Authenticator) addCertificates(list []Certificate, f *faults) {
	seen := map[[3]string]bool{}
	for i, c := range list {
		field := fmt.Sprintf("mtls[%d]", i)
		entry := certificate{subject: c.Subject, uri: c.URI, dns: strings.ToLower(c.DNS), id: f.member(field, c.Tenant, c.Principal, c.Roles, c.Rights)}
		entry.id.Method = MethodMTLS
		given := 0
		for _, name := range []string{c.Subject, c.URI, c.DNS} {
			if name != "" {
				given++
			}
		}
		if given != 1 {
			f.add(field, errors.New("needs exactly one of subject, uri and dns"))
		}
		if strings.Contains(c.Subject, ", ") || strings.Contains(c.Subject, " = ") {
			f.add(field+".subject", errors.New(`is not written as in RFC 2253, such as "CN=shop,O=Acme": spaces at a comma or an equals sign match nothing`))
		}
		if u, err := url.Parse(c.URI); err != nil || c.URI != "" && u.Scheme == "" {
			f.add(field+".uri", errors.New("is not a URI"))
		}
		if strings.Contains(c.DNS, "*") {
			f.add(field+".dns", errors.New("has a wildcard"))
		}
		name := [3]string{entry.subject, entry.uri, entry.dns}
		if given == 1 && seen[name] {
			f.add(field, errors.New("names the same certificate as another entry"))
		}
		seen[name] = true
		a.certificates = append(a.certificates, entry)
	}
}

// byCertificate identifies the caller by the client certificate. The first entry that
// matches wins.
func (a *Authenticator) byCertificate(r *http.Request) (Identity, error) {
	if len(a.certificates) == 0 || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return Identity{}, errNone
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, bad(invalidRequest, "the client certificate was not verified")
	}
	leaf := r.TLS.VerifiedChains[0][0]
	// It was valid when the connection was made, which can be long ago.
	if now := time.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return Identity{}, bad(invalidRequest, "the client certificate is not valid at this time")
	}
	subject := subjectOf(leaf)
	for i := range a.certificates {
		c := &a.certificates[i]
		if c.subject != "" && c.subject == subject ||
			c.uri != "" && slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == c.uri }) ||
			c.dns != "" && slices.ContainsFunc(leaf.DNSNames, func(name string) bool { return strings.ToLower(name) == c.dns }) {
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
