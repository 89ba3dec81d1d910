package auth_test

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/internal/service/auth"
)

// certificate makes a self-signed certificate, valid for an hour by default.
func certificate(t *testing.T, key crypto.Signer, c *x509.Certificate) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(1)
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return must(x509.ParseCertificate(der))
}

func TestCertificates(t *testing.T) {
	key := keys().p256
	a := newAuth(t, auth.Settings{MTLS: []auth.ClientCert{
		{Subject: "CN=shop,O=Acme", Tenant: "acme", Principal: "shop", Roles: []string{"viewer"}},
	}})
	named := func(name pkix.Name) *x509.Certificate {
		return certificate(t, key, &x509.Certificate{Subject: name})
	}
	who := func(principal string, roles auth.Role) auth.Identity {
		return auth.Identity{Tenant: "acme", Principal: principal, Roles: roles, Method: auth.MethodMTLS}
	}
	shopCert := named(pkix.Name{CommonName: "shop", Organization: []string{"Acme"}})
	t.Run("the subject identifies", func(t *testing.T) {
		wantIdentity(t, a, request(over(shopCert)), who("shop", auth.Viewer))
	})
	t.Run("a name that only resembles one is nobody's", func(t *testing.T) {
		commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
		for _, name := range []pkix.Name{
			{CommonName: "shop"},
			{CommonName: "Shop", Organization: []string{"Acme"}},
			{CommonName: "shop,O=Acme"},
			{CommonName: "shop", Organization: []string{"Acme", "Other"}},
			{CommonName: "shop", Organization: []string{"Acme"}, OrganizationalUnit: []string{"X"}},
			{ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "Acme"},
				{Type: commonName, Value: "intruder"}, {Type: commonName, Value: "shop"},
			}},
			{ExtraNames: []pkix.AttributeTypeAndValue{ // the parts in another order
				{Type: commonName, Value: "shop"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "Acme"},
			}},
			{},
		} {
			wantBad(t, a, request(over(named(name))), "no configured caller")
		}
	})
	t.Run("only the leaf counts", func(t *testing.T) {
		wantBad(t, a, request(over(named(pkix.Name{CommonName: "other"}), shopCert)), "no configured caller")
	})
	t.Run("a certificate that was not verified is refused", func(t *testing.T) {
		wantBad(t, a, request(func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shopCert}}
		}), "not verified")
	})
	t.Run("a certificate that ran out while its connection lives is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			short := named(pkix.Name{CommonName: "shop", Organization: []string{"Acme"}})
			wantIdentity(t, a, request(over(short)), who("shop", auth.Viewer))
			<-time.After(time.Hour + time.Second)
			wantBad(t, a, request(over(short)), "not valid at this time")
		})
	})
	t.Run("no certificate is no credential, and without entries none is looked at", func(t *testing.T) {
		wantNone(t, a, request())
		wantNone(t, a, request(func(r *http.Request) { r.TLS = &tls.ConnectionState{} }))
		wantNone(t, newAuth(t, auth.Settings{Tokens: []auth.Token{shopSettings}}), request(over(shopCert)))
	})
	t.Run("a real connection gives what the certificate says", func(t *testing.T) {
		cert := certificate(t, key, &x509.Certificate{
			Subject: pkix.Name{CommonName: "shop", Organization: []string{"Acme"}}, IsCA: true, BasicConstraintsValid: true,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		})
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wantIdentity(t, a, r, who("shop", auth.Viewer))
			w.WriteHeader(http.StatusNoContent)
		}))
		pool := x509.NewCertPool()
		pool.AddCert(cert)
		srv.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
		srv.StartTLS()
		defer srv.Close()
		client := srv.Client()
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
		resp, err := client.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.Status)
		}
	})
}
