package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// publicKey is a key that tokens are verified with.
type publicKey struct {
	kid    string // empty: not known
	alg    string // empty: any that fits
	public crypto.PublicKey
}

// fits reports whether the key is one for the algorithm. A key that serves another
// algorithm than it was made for is the start of many forgeries.
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

// check refuses keys that are too weak, or so large that verifying is a burden.
func (k publicKey) check() error {
	if public, ok := k.public.(*rsa.PublicKey); ok {
		if n := public.N.BitLen(); n < 2048 || n > 8192 {
			return fmt.Errorf("the RSA key has %d bits, not between 2048 and 8192", n)
		}
		if public.E < 3 || public.E%2 == 0 {
			return fmt.Errorf("the RSA key has the exponent %d", public.E)
		}
	}
	return nil
}

// readKeys reads a JSON Web Key Set or PEM blocks.
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

// checkKeys refuses a set with a key that can't be used, or without any.
func checkKeys(keys []publicKey, err error) ([]publicKey, error) {
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("has no public key that tokens can be signed for")
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
			// A private key has no place where tokens are only verified.
			return nil, fmt.Errorf("has a block %q; only public keys and certificates belong here", block.Type)
		}
		if err != nil {
			return nil, err
		}
		k := publicKey{public: public}
		if !slices.ContainsFunc(algorithms, k.fits) {
			return nil, fmt.Errorf("has a key of the kind %T, which no algorithm takes", public)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// webKey is a JSON Web Key (RFC 7517, RFC 7518 section 6, RFC 8037 section 2).
type webKey struct {
	Kty    string   `json:"kty"`
	Kid    string   `json:"kid"`
	Alg    string   `json:"alg"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	D      string   `json:"d"` // private, of all kinds
	K      string   `json:"k"` // symmetric
}

func parseJWKS(data []byte) ([]publicKey, error) {
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, err
	}
	var keys []publicKey
	kids := map[string]bool{}
	for i, w := range set.Keys {
		if w.D != "" || w.K != "" {
			return nil, fmt.Errorf("keys[%d] is secret; only public keys belong here", i)
		}
		if w.Use != "" && w.Use != "sig" || w.KeyOps != nil && !slices.Contains(w.KeyOps, "verify") {
			continue
		}
		public, err := w.public()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if public == nil {
			continue // RFC 7517 section 5: kinds that are not known are ignored
		}
		if w.Kid != "" && kids[w.Kid] {
			return nil, fmt.Errorf("keys[%d]: the kid %q is taken by another key", i, w.Kid)
		}
		kids[w.Kid] = true
		keys = append(keys, publicKey{kid: w.Kid, alg: w.Alg, public: public})
	}
	return keys, nil
}

// public gives the key, or nil if it is of a kind that is not known.
func (w *webKey) public() (crypto.PublicKey, error) {
	switch w.Kty {
	case "RSA":
		n, err := base64.RawURLEncoding.DecodeString(w.N)
		if err != nil {
			return nil, fmt.Errorf("n: %w", err)
		}
		e, err := base64.RawURLEncoding.DecodeString(w.E)
		if err != nil || len(e) == 0 || len(e) > 4 {
			return nil, errors.New("e is not an exponent of at most 4 bytes")
		}
		exponent := new(big.Int).SetBytes(e).Int64()
		if exponent > 1<<31-1 {
			return nil, errors.New("e is too large")
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent)}, nil
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[w.Crv]
		if curve == nil {
			return nil, nil
		}
		size := (curve.Params().BitSize + 7) / 8
		point := []byte{4} // uncompressed
		for _, text := range []string{w.X, w.Y} {
			b, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || len(b) != size {
				return nil, fmt.Errorf("x and y are not coordinates of %d bytes", size)
			}
			point = append(point, b...)
		}
		return ecdsa.ParseUncompressedPublicKey(curve, point)
	case "OKP":
		if w.Crv != "Ed25519" {
			return nil, nil
		}
		x, err := base64.RawURLEncoding.DecodeString(w.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("x is not a key of %d bytes", ed25519.PublicKeySize)
		}
		return ed25519.PublicKey(x), nil
	}
	return nil, nil
}
