package httpsig

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// published reads a message of a specification's test vectors, with its body. Lines of
// header fields are folded there no more.
func published(t *testing.T, name string) (*http.Request, []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, body
}

func publishedKey(t *testing.T, name string) crypto.PublicKey {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors", name+".pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// one reads the only signature of a request.
func one(t *testing.T, header http.Header, component func(string) (string, error)) *signature {
	t.Helper()
	m, err := readMessage(header)
	if err != nil || len(m.labels) != 1 {
		t.Fatal(m, err)
	}
	s, err := m.read(m.labels[0], component)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRFC9421Vectors verifies signatures of RFC 9421, appendix B.2. B.2.2 covers
// @query-param, which isn't supported, and B.2.5 is an HMAC.
func TestRFC9421Vectors(t *testing.T) {
	for name, test := range map[string]struct{ key, algorithm string }{
		"b21": {"rsa-pss", "rsa-pss-sha512"},
		"b23": {"rsa-pss", "rsa-pss-sha512"},
		"b26": {"ed25519", "ed25519"},
	} {
		t.Run(name, func(t *testing.T) {
			r, body := published(t, name)
			q, err := requestOf(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			s, key := one(t, r.Header, q.component), publishedKey(t, test.key)
			for _, algorithm := range []string{"", test.algorithm} {
				if err := check(key, algorithm, FormRFC9421, s.text, s.value); err != nil {
					t.Errorf("algorithm %q: %v", algorithm, err)
				}
			}
			if err := checkContentDigest(r.Header, body); err != nil {
				t.Error(err)
			}
			for i := range s.text {
				text := bytes.Clone(s.text)
				text[i] ^= 1
				if err := check(key, test.algorithm, FormRFC9421, text, s.value); !hasCode(err, SignatureWrong) {
					t.Fatalf("byte %d changed: %v", i, err)
				}
			}
			if err := check(key, "ecdsa-p256-sha256", FormRFC9421, s.text, s.value); !hasCode(err, AlgorithmRefused) {
				t.Error("another key's algorithm:", err)
			}
		})
	}
	t.Run("b24, a response", func(t *testing.T) {
		r, body := published(t, "b24")
		s := one(t, r.Header, func(name string) (string, error) {
			if name == "@status" {
				return "200", nil
			}
			return r.Header.Get(name), nil
		})
		if err := check(publishedKey(t, "p256"), "ecdsa-p256-sha256", FormRFC9421, s.text, s.value); err != nil {
			t.Error(err)
		}
		if err := checkContentDigest(r.Header, body); err != nil {
			t.Error(err)
		}
	})
	t.Run("b22, a component that is not supported", func(t *testing.T) {
		r, _ := published(t, "b22")
		q, _ := requestOf(r, nil)
		m, err := readMessage(r.Header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.read("sig-b22", q.component); !hasCode(err, SignatureMalformed) {
			t.Error(err)
		}
	})
	t.Run("signing by Ed25519 makes the published signature", func(t *testing.T) {
		data, err := os.ReadFile(filepath.Join("testdata", "vectors", "ed25519-private.pem"))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := published(t, "b26")
		q, _ := requestOf(r, nil)
		s := one(t, r.Header, q.component)
		for _, a := range algorithms {
			if a.rfc9421 != "ed25519" {
				continue
			}
			if got, err := a.sign(key.(crypto.Signer), s.text, FormRFC9421); err != nil || !bytes.Equal(got, s.value) {
				t.Errorf("%x, %v", got, err)
			}
		}
	})
}

// TestCavageVectors verifies signatures of draft-cavage-http-signatures-12, appendix C.
// C.3 is published with (created) and (expires) among its headers, which were not signed.
func TestCavageVectors(t *testing.T) {
	for _, name := range []string{"c2", "c3"} {
		t.Run(name, func(t *testing.T) {
			r, body := published(t, name)
			q, err := requestOf(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := readCavage(r.Header, q)
			if err != nil {
				t.Fatal(err)
			}
			key := publishedKey(t, "cavage")
			for _, algorithm := range []string{s.algorithm, "", hs2019} {
				if err := check(key, algorithm, FormCavage, s.text, s.value); err != nil {
					t.Errorf("algorithm %q: %v", algorithm, err)
				}
			}
			if err := checkDigest(r.Header, body); err != nil {
				t.Error(err)
			}
			for name, changed := range map[string]string{"the target": "post /fo", "the host": "host: examplf.com"} {
				text := strings.Replace(strings.Replace(string(s.text), "post /foo", "post /fo", 1), "host: example.com", changed, 1)
				if err := check(key, "", FormCavage, []byte(text), s.value); !hasCode(err, SignatureWrong) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := fit(key); err == nil {
				t.Error("a key of 1024 bits is accepted")
			}
		})
	}
}
