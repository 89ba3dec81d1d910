package webhook

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/semelhq/semel/door/inbox"
)

// secret is used to check a signature.
type secret struct {
	raw         []byte // the key of an HMAC, or the token
	public      any    // an ed25519.PublicKey, *ecdsa.PublicKey or *rsa.PublicKey
	certificate *x509.Certificate
}

// ended reports whether it is a certificate that isn't valid at a time.
func (k *secret) ended(now time.Time) bool {
	return k.certificate != nil && (now.Before(k.certificate.NotBefore) || now.After(k.certificate.NotAfter))
}

// hashes of HMACs.
var hashes = map[string]func() hash.Hash{"hmac-sha256": sha256.New, "hmac-sha1": sha1.New, "hmac-sha512": sha512.New}

// key decodes a secret in the sender's form.
func (g *Signature) key(text string) (secret, error) {
	if block, _ := pem.Decode([]byte(text)); block != nil && hashes[g.Algorithm] == nil {
		return g.public(block.Type, block.Bytes)
	}
	key, err := decoded(g.Secret, strings.TrimPrefix(text, g.SecretPrefix)) // some consoles and libraries leave the prefix out
	if err != nil {
		return secret{}, errors.New("it is not " + g.Secret)
	}
	if g.Algorithm == "ed25519" && len(key) == ed25519.PublicKeySize {
		return secret{public: ed25519.PublicKey(key)}, nil
	}
	if hashes[g.Algorithm] == nil && g.Algorithm != "token" {
		return g.public("PUBLIC KEY", key)
	}
	if len(key) < minSecret {
		return secret{}, fmt.Errorf("it has fewer than %d bytes", minSecret)
	}
	return secret{raw: key}, nil
}

// decoded decodes a text in hex or in base64, or returns it unchanged.
func decoded(encoding, text string) ([]byte, error) {
	switch encoding {
	case "hex":
		return hex.DecodeString(text)
	case "base64":
		return base64.StdEncoding.DecodeString(text)
	}
	return []byte(text), nil
}

// public reads a public key or a certificate.
func (g *Signature) public(kind string, der []byte) (k secret, err error) {
	if kind == "CERTIFICATE" {
		if k.certificate, err = x509.ParseCertificate(der); err == nil {
			k.public = k.certificate.PublicKey
		}
	} else {
		k.public, err = x509.ParsePKIXPublicKey(der)
	}
	if err != nil {
		return secret{}, errors.New("it is neither a public key nor a certificate")
	}
	fits := false
	switch key := k.public.(type) {
	case ed25519.PublicKey:
		fits = g.Algorithm == "ed25519"
	case *ecdsa.PublicKey:
		fits = g.Algorithm == "ecdsa-p256-sha256" && key.Curve == elliptic.P256()
	case *rsa.PublicKey:
		fits = g.Algorithm == "rsa-sha256" && key.N.BitLen() >= minRSA
	}
	if !fits {
		return secret{}, fmt.Errorf("its key is not one for %s", g.Algorithm)
	}
	return k, nil
}

// minRSA is the smallest size of an RSA key in bits, by NIST SP 800-131A.
const minRSA = 2048

// signatures reads the signatures of a delivery, and the entries beside them.
func (v *Verifier) signatures(at *view) ([][]byte, error) {
	g := &v.source.Signature
	text, err := at.value(&v.source.key)
	if _, none := errors.AsType[*missing](err); none {
		return nil, &Refusal{Code: CodeSignatureMissing, Err: err}
	}
	if err != nil {
		return nil, &Refusal{Code: CodeSignatureMalformed, Err: err}
	}
	var found []string
	switch g.Form {
	case "labels":
		at.labels = map[string]string{}
		for entry := range strings.SplitSeq(text, g.Separator) {
			label, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
			if label == g.Prefix {
				found = append(found, value)
			} else {
				at.labels[label] = value
			}
		}
	case "list":
		for entry := range strings.FieldsSeq(text) {
			if label, value, _ := strings.Cut(entry, ","); label == g.Prefix {
				found = append(found, value)
			}
		}
	default:
		if bare, ok := strings.CutPrefix(text, g.Prefix); ok {
			found = append(found, bare)
		}
	}
	var list [][]byte
	for _, text := range found[:min(len(found), maxSignatures)] {
		if sum, err := g.decode(text); err == nil {
			list = append(list, sum)
		}
	}
	if len(list) == 0 {
		return nil, inbox.Refuse(CodeSignatureMalformed, "there is no signature of the form %s in %s", g.form(g.Encoding), v.source.key.text)
	}
	return list, nil
}

// decode reads one signature.
func (g *Signature) decode(text string) ([]byte, error) {
	sum, err := decoded(g.Encoding, text)
	want := ed25519.SignatureSize
	if h := hashes[g.Algorithm]; h != nil {
		want = h().Size()
	} else if g.Algorithm != "ed25519" {
		return sum, err // the encoding depends on the key
	}
	if err == nil && len(sum) != want {
		err = fmt.Errorf("%d bytes", len(sum))
	}
	return sum, err
}

// form encodes a signature like the sender.
func (g *Signature) form(text string) string {
	switch g.Form {
	case "labels":
		return g.Prefix + "=" + text
	case "list":
		return g.Prefix + "," + text
	}
	return g.Prefix + text
}

// made reports whether a key made a signature, in constant time where the key is a secret.
func (g *Signature) made(sum []byte, k *secret, signed []byte) bool {
	digest := func(b []byte) []byte { d := sha256.Sum256(b); return d[:] }
	switch key := k.public.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, signed, sum)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, digest(signed), sum)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest(signed), sum) == nil
	}
	if g.Algorithm == "token" {
		return hmac.Equal(digest(sum), digest(k.raw)) // so that the token's length doesn't show
	}
	return hmac.Equal(sum, g.mac(k.raw, signed))
}

// mac returns the HMAC of the signed bytes.
func (g *Signature) mac(key, signed []byte) []byte {
	h := hmac.New(hashes[g.Algorithm], key)
	h.Write(signed)
	return h.Sum(nil)
}
