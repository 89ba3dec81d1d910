package httpsig

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
)

// fromPEM reads a publicKeyPem: a PKIX key, or a PKCS #1 one as some old servers write it.
func fromPEM(text string) (any, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the publicKeyPem is not one block of PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		var k *rsa.PublicKey
		k, err = x509.ParsePKCS1PublicKey(block.Bytes)
		key = k
	default:
		err = errors.New("another block")
	}
	if err != nil {
		return nil, errors.New("the publicKeyPem is not a public key")
	}
	return key, fit(key)
}

// maxMultibase is the length of the longest text to decode. A key has 48 digits; decoding takes
// time by the square of their number.
const maxMultibase = 100

// fromMultibase reads a publicKeyMultibase of an Ed25519 key (FEP-521a): z, and in
// base58btc the multicodec ed25519-pub with 32 bytes.
func fromMultibase(text string) (any, error) {
	digits, ok := strings.CutPrefix(text, "z")
	raw, err := base58(digits)
	if !ok || err != nil || len(raw) != 34 || raw[0] != 0xed || raw[1] != 0x01 {
		return nil, errors.New("the publicKeyMultibase is not an Ed25519 key in base58btc")
	}
	return ed25519.PublicKey(raw[2:]), nil
}

const base58digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// base58 decodes Bitcoin's alphabet. Each leading 1 is a byte of zeros.
func base58(text string) ([]byte, error) {
	if len(text) > maxMultibase {
		return nil, errors.New("too long")
	}
	n, base := new(big.Int), big.NewInt(58)
	for i := range len(text) {
		d := strings.IndexByte(base58digits, text[i])
		if d < 0 {
			return nil, errors.New("not base58")
		}
		n.Add(n.Mul(n, base), big.NewInt(int64(d)))
	}
	zeros := len(text) - len(strings.TrimLeft(text, "1"))
	return append(make([]byte, zeros), n.Bytes()...), nil
}
