package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// TestPublicKeys: a key of another kind or size isn't one, and a certificate ends.
func TestPublicKeys(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	sendgrid, _ := Builtin("sendgrid")
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(large.Public())
	if err != nil {
		t.Fatal(err)
	}
	p384 := base64.StdEncoding.EncodeToString(spki)
	ec := newParty(t, sendgrid).secret
	for source, secrets := range map[string][]string{
		"paypal":   {"a text that is no key", ec, certify(t, small, signedAt.Add(time.Hour)), strings.Replace(certificate, "M", "N", 1)},
		"sendgrid": {certificate, "no base64", "YWJjZGVmZ2hpams=", p384},
	} {
		s, err := Builtin(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			if _, err := NewVerifier(VerifierOptions{Source: s, Secrets: []string{secret}, Endpoint: endpoint}); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s with %q: %v", source, secret, err)
			}
		}
	}
	v, d := vectorOf(t, "paypal")
	for now, code := range map[string]Code{"2021-02-25T15:02:10Z": "", "2022-01-01T00:00:01Z": CodeSignatureWrong, "2020-12-31T23:59:59Z": CodeSignatureWrong} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		ver := v.verifier(t, func(o *VerifierOptions) { o.Now = func() time.Time { return at } })
		if _, err := ver.Verify(d); code != "" {
			wantCode(t, err, code)
			if hints := ver.Diagnose(d, []string{v.secret}).Hints; !strings.Contains(strings.Join(hints, "\n"), "valid from 2021-01-01T00:00:00Z to 2022-01-01T00:00:00Z") {
				t.Errorf("hints: %q", hints)
			}
		} else if err != nil {
			t.Error(err)
		}
	}
	s, _ := Builtin("paypal")
	if _, err := NewVerifier(VerifierOptions{Source: s, Secrets: []string{v.secret}}); err == nil || !strings.Contains(err.Error(), "Endpoint is missing") {
		t.Errorf("%v", err)
	}
	_, err = v.verifier(t, func(o *VerifierOptions) { o.Endpoint = "another webhook" }).Verify(d)
	wantCode(t, err, CodeSignatureWrong)
	if err := s.Sign(d, v.secret, "", signedAt); err == nil {
		t.Error("a delivery is signed by a certificate")
	}
}
