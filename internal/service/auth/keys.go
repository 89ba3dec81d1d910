package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
)

type publicKey struct {
	kid    string // empty: unknown
	alg    string // empty: any that fits
	public crypto.PublicKey
}

// fits reports whether the key is for the algorithm. Many forgeries start with a key that is
// used for another algorithm.
func (k publicKey) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		switch public.Curve {
		case elliptic.P256():
			return alg == "ES256"
		case elliptic.P384():
			return alg == "ES384"
		case elliptic.P521():
			return alg == "ES512"
		}
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// check refuses keys that are too weak, or so large that verifying takes too long.
func (k publicKey) check() error {
	if public, ok := k.public.(*rsa.PublicKey); ok {
		if n := public.N.BitLen(); n < 2048 || n > 8192 {
			return fmt.Errorf("the RSA key has %d bits, not between 2048 and 8192", n)
		}
		if public.E < 3 || public.E > 1<<31-1 || public.E%2 == 0 {
			return fmt.Errorf("the RSA key has the exponent %d", public.E)
		}
	}
	return nil
}

func readKeys(path string) ([]publicKey, error) {
	if path == "" {
		return nil, errors.New("is empty")
	}
	data, err := ReadFile(path, maxKeySet)
	if err != nil {
		return nil, err
	}
	parse := parsePEM
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		parse = parseJWKS
	}
	keys, err := checkKeys(parse(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// checkKeys refuses a set without keys, or with one that can't be used.
func checkKeys(keys []publicKey, err error) ([]publicKey, error) {
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("has no public key that can verify tokens")
	}
	for _, k := range keys {
		if err := k.check(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func parsePEM(data []byte) ([]publicKey, error) {
	var keys []publicKey
	for len(bytes.TrimSpace(data)) > 0 {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("is neither a JSON Web Key Set nor PEM")
		}
		var public crypto.PublicKey
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			public, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			public, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				public = cert.PublicKey
			}
		default:
			// Only verifying needs no private key, so it doesn't belong here.
			return nil, fmt.Errorf("has a block %q; only public keys and certificates belong here", block.Type)
		}
		if err != nil {
			return nil, err
		}
		k := publicKey{public: public}
		if !slices.ContainsFunc(Algorithms, k.fits) {
			return nil, fmt.Errorf("has a key of the kind %T, which no algorithm uses", public)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

var keyKinds = []string{"RSA", "EC P-256", "EC P-384", "EC P-521", "OKP Ed25519"}

// parseJWKS reads a JSON Web Key Set (RFC 7517).
func parseJWKS(data []byte) ([]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, err
	}
	var keys []publicKey
	kids := map[string]bool{}
	for i, text := range set.Keys {
		var about struct {
			Kty    string   `json:"kty"`
			Crv    string   `json:"crv"`
			Use    string   `json:"use"`
			KeyOps []string `json:"key_ops"`
			D      string   `json:"d"` // private, of all kinds
			K      string   `json:"k"` // symmetric
		}
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		kind := about.Kty
		if kind != "RSA" {
			kind += " " + about.Crv
		}
		switch {
		case about.D != "" || about.K != "":
			return nil, fmt.Errorf("keys[%d] is secret; only public keys belong here", i)
		case about.Use != "" && about.Use != "sig" || about.KeyOps != nil && !slices.Contains(about.KeyOps, "verify"):
			continue
		case !slices.Contains(keyKinds, kind):
			continue // RFC 7517 section 5: unknown kinds are ignored
		}
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if key.KeyID != "" && kids[key.KeyID] {
			return nil, fmt.Errorf("keys[%d]: another key has the kid %q too", i, key.KeyID)
		}
		kids[key.KeyID] = true
		keys = append(keys, publicKey{kid: key.KeyID, alg: key.Algorithm, public: key.Key})
	}
	return keys, nil
}

// ReadFile reads a file that says who may call, or proves who speaks: a token, a key, a
// secret. It refuses a file that everybody on the machine can write, because that proves
// nothing, and one of more than largest bytes. It doesn't check modes on systems without
// them, such as Windows.
func ReadFile(name string, largest int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("%s can be written by everybody on this machine: chmod o-w %[1]s", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > largest {
		return nil, fmt.Errorf("%s has more than %d bytes", name, largest)
	}
	return data, nil
}
