package httpsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// algorithm is one way to sign with one kind of key. Its two names are the ones of the
// two forms.
type algorithm struct {
	rfc9421, cavage string
	fits            func(crypto.PublicKey) bool
	verify          func(key crypto.PublicKey, text, signature []byte, form string) bool
	sign            func(key crypto.Signer, text []byte, form string) ([]byte, error)
}

func isRSA(k crypto.PublicKey) bool     { _, ok := k.(*rsa.PublicKey); return ok }
func isEd25519(k crypto.PublicKey) bool { _, ok := k.(ed25519.PublicKey); return ok }
func isP256(k crypto.PublicKey) bool {
	e, ok := k.(*ecdsa.PublicKey)
	return ok && e.Curve == elliptic.P256()
}

// algorithms are all that are accepted; the first that fits a key signs with it. There is
// no SHA-1, no HMAC, whose key its verifier could sign with, and no "none".
var algorithms = []*algorithm{
	{
		rfc9421: "rsa-v1_5-sha256", cavage: "rsa-sha256", fits: isRSA,
		verify: func(key crypto.PublicKey, text, signature []byte, _ string) bool {
			sum := sha256.Sum256(text)
			return rsa.VerifyPKCS1v15(key.(*rsa.PublicKey), crypto.SHA256, sum[:], signature) == nil
		},
		sign: func(key crypto.Signer, text []byte, _ string) ([]byte, error) {
			sum := sha256.Sum256(text)
			return key.Sign(rand.Reader, sum[:], crypto.SHA256)
		},
	},
	{
		rfc9421: "rsa-pss-sha512", fits: isRSA,
		verify: func(key crypto.PublicKey, text, signature []byte, _ string) bool {
			sum := sha512.Sum512(text)
			return rsa.VerifyPSS(key.(*rsa.PublicKey), crypto.SHA512, sum[:], signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		},
	},
	{
		cavage: "rsa-sha512", fits: isRSA,
		verify: func(key crypto.PublicKey, text, signature []byte, _ string) bool {
			sum := sha512.Sum512(text)
			return rsa.VerifyPKCS1v15(key.(*rsa.PublicKey), crypto.SHA512, sum[:], signature) == nil
		},
	},
	{
		rfc9421: "ecdsa-p256-sha256", cavage: "ecdsa-sha256", fits: isP256,
		verify: func(key crypto.PublicKey, text, signature []byte, form string) bool {
			sum := sha256.Sum256(text)
			if form == FormRFC9421 { // r and s, 32 bytes each
				var err error
				if signature, err = fromRaw(signature); err != nil {
					return false
				}
			}
			return ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), sum[:], signature)
		},
		sign: func(key crypto.Signer, text []byte, form string) ([]byte, error) {
			sum := sha256.Sum256(text)
			der, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
			if err != nil || form != FormRFC9421 {
				return der, err
			}
			return toRaw(der)
		},
	},
	{
		rfc9421: "ed25519", cavage: "ed25519", fits: isEd25519,
		verify: func(key crypto.PublicKey, text, signature []byte, _ string) bool {
			return ed25519.Verify(key.(ed25519.PublicKey), text, signature)
		},
		sign: func(key crypto.Signer, text []byte, _ string) ([]byte, error) {
			return key.Sign(rand.Reader, text, crypto.Hash(0))
		},
	},
}

func (a *algorithm) name(form string) string {
	if form == FormCavage {
		return a.cavage
	}
	return a.rfc9421
}

// hs2019 is the name that the draft gives to "whatever the key's document says". Nobody's
// says it, so it is the same as no name.
const hs2019 = "hs2019"

// candidates are the algorithms that a signature may be of: the one it names, or all that
// go with the key.
func candidates(key crypto.PublicKey, name, form string) ([]*algorithm, error) {
	if form == FormCavage && name == hs2019 {
		name = ""
	}
	var fit []*algorithm
	for _, a := range algorithms {
		named := name != "" && a.name(form) == name
		switch {
		case named && !a.fits(key):
			return nil, refuse(AlgorithmRefused, "the algorithm %s is not one of the key's kind", name)
		case named, name == "" && a.fits(key) && (form == FormCavage || a.rfc9421 != ""):
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

// fit checks that a public key is of a kind and size that is accepted. A larger RSA key
// would cost its verifier too much, a smaller one too little to forge.
func fit(key crypto.PublicKey) error {
	if k, ok := key.(*rsa.PublicKey); ok {
		if bits := k.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("an RSA key of %d bits is not accepted", bits)
		}
	}
	if !slices.ContainsFunc(algorithms, func(a *algorithm) bool { return a.fits(key) }) {
		return errors.New("keys of this kind are not accepted")
	}
	return nil
}

// point is an ECDSA signature in ASN.1.
type point struct{ R, S *big.Int }

func fromRaw(raw []byte) ([]byte, error) {
	if len(raw) != 64 {
		return nil, errors.New("the signature has another length")
	}
	return asn1.Marshal(point{new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])})
}

func toRaw(der []byte) ([]byte, error) {
	var p point
	if _, err := asn1.Unmarshal(der, &p); err != nil {
		return nil, err
	}
	raw := make([]byte, 64)
	p.R.FillBytes(raw[:32])
	p.S.FillBytes(raw[32:])
	return raw, nil
}
