package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/http"
	"time"
)

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
