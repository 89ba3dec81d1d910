package httpsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// algorithm is one way to sign with one kind of key. It has a name in each of the two forms.
type algorithm struct {
	rfc9421, cavage string
	kind            string
	hash            crypto.Hash // 0: the text itself is signed
	pss             bool
}

// kindOf returns the kind of a key; empty if no algorithm accepts it.
func kindOf(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA"
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return "P-256"
		}
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return ""
}

// algorithms are all the accepted ones; the first that fits a key is used for signing. There is
// no SHA-1, no HMAC, since its verifier could sign with the key, and no "none".
var algorithms = []*algorithm{
	{rfc9421: "rsa-v1_5-sha256", cavage: "rsa-sha256", kind: "RSA", hash: crypto.SHA256},
	{rfc9421: "rsa-pss-sha512", kind: "RSA", hash: crypto.SHA512, pss: true},
	{cavage: "rsa-sha512", kind: "RSA", hash: crypto.SHA512},
	{rfc9421: "ecdsa-p256-sha256", cavage: "ecdsa-sha256", kind: "P-256", hash: crypto.SHA256},
	{rfc9421: "ed25519", cavage: "ed25519", kind: "Ed25519"},
}

// sum returns the bytes of a text that the key signs.
func (a *algorithm) sum(text []byte) []byte {
	if a.hash == 0 {
		return text
	}
	h := a.hash.New()
	h.Write(text)
	return h.Sum(nil)
}

// verify checks a signature by a key of the algorithm's kind.
func (a *algorithm) verify(key crypto.PublicKey, text, signature []byte, form string) bool {
	sum := a.sum(text)
	switch k := key.(type) {
	case *rsa.PublicKey:
		if a.pss {
			return rsa.VerifyPSS(k, a.hash, sum, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
		return rsa.VerifyPKCS1v15(k, a.hash, sum, signature) == nil
	case *ecdsa.PublicKey:
		if form == FormRFC9421 { // r and s, 32 bytes each
			return len(signature) == 64 && ecdsa.Verify(k, sum, new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
		}
		return ecdsa.VerifyASN1(k, sum, signature)
	case ed25519.PublicKey:
		return ed25519.Verify(k, sum, signature)
	}
	return false
}

func (a *algorithm) sign(key crypto.Signer, text []byte, form string) ([]byte, error) {
	signature, err := key.Sign(rand.Reader, a.sum(text), a.hash)
	if err != nil || a.kind != "P-256" || form != FormRFC9421 {
		return signature, err
	}
	return toRaw(signature)
}

func (a *algorithm) name(form string) string {
	if form == FormCavage {
		return a.cavage
	}
	return a.rfc9421
}

// hs2019 is the draft's name for "whatever the key's document says". No document says it, so it
// counts as no name.
const hs2019 = "hs2019"

// candidates returns the algorithms that a signature may use: the one it names, or all that fit
// the key.
func candidates(key crypto.PublicKey, name, form string) ([]*algorithm, error) {
	if form == FormCavage && name == hs2019 {
		name = ""
	}
	var fit []*algorithm
	for _, a := range algorithms {
		named, fits := name != "" && a.name(form) == name, a.kind == kindOf(key)
		switch {
		case named && !fits:
			return nil, refuse(AlgorithmRefused, "the algorithm %s is not one of the key's kind", name)
		case named, name == "" && fits && (form == FormCavage || a.rfc9421 != ""):
			fit = append(fit, a)
		}
	}
	if len(fit) == 0 {
		return nil, refuse(AlgorithmRefused, "the algorithm is none of those that are accepted")
	}
	return fit, nil
}

// check verifies a signature of a text.
func check(key crypto.PublicKey, name, form string, text, signature []byte) error {
	fit, err := candidates(key, name, form)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(fit, func(a *algorithm) bool { return a.verify(key, text, signature, form) }) {
		return refuse(SignatureWrong, "the key did not sign this request")
	}
	return nil
}

// fit checks that a public key has an accepted kind and size. A larger RSA key would cost its
// verifier too much, and a smaller one is too easy to forge.
func fit(key crypto.PublicKey) error {
	if k, ok := key.(*rsa.PublicKey); ok {
		if bits := k.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("an RSA key of %d bits is not accepted", bits)
		}
	}
	if kindOf(key) == "" {
		return errors.New("keys of this kind are not accepted")
	}
	return nil
}

// toRaw turns an ECDSA signature in ASN.1 into r and s, 32 bytes each.
func toRaw(der []byte) ([]byte, error) {
	var p struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &p); err != nil {
		return nil, err
	}
	raw := make([]byte, 64)
	p.R.FillBytes(raw[:32])
	p.S.FillBytes(raw[32:])
	return raw, nil
}
