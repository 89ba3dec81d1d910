package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"github.com/semelhq/semel/protocol/inbox"
	"strings"
)

// key decodes a secret as the sender writes it.
func (g *Signature) key(text string) ([]byte, error) {
	var key []byte
	var err error
	bare := strings.TrimPrefix(text, g.SecretPrefix) // some consoles and libraries leave it out
	switch {
	case g.Secret == "hex":
		if key, err = hex.DecodeString(bare); err != nil {
			return nil, errors.New("it is not hexadecimal")
		}
	case g.Secret == "base64":
		if key, err = base64.StdEncoding.DecodeString(bare); err != nil {
			return nil, errors.New("it is not base64")
		}
	default:
		key = []byte(bare)
	}
	if g.Algorithm == "ed25519" && len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("a public key has %d bytes, and this one has %d", ed25519.PublicKeySize, len(key))
	}
	if len(key) < minSecret {
		return nil, fmt.Errorf("it has fewer than %d bytes", minSecret)
	}
	return key, nil
}

// signatures reads the signatures of a delivery, and the other entries beside them.
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
		return nil, inbox.Refuse(CodeSignatureMalformed, "there is no signature of the form %s in %s", g.example(), v.source.key.text)
	}
	return list, nil
}

// decode reads one signature.
func (g *Signature) decode(text string) (sum []byte, err error) {
	if g.Encoding == "hex" {
		sum, err = hex.DecodeString(text)
	} else {
		sum, err = base64.StdEncoding.DecodeString(text)
	}
	want := sha256.Size
	if g.Algorithm == "ed25519" {
		want = ed25519.SignatureSize
	}
	if err == nil && len(sum) != want {
		err = fmt.Errorf("%d bytes", len(sum))
	}
	return sum, err
}

// example is how a signature looks.
func (g *Signature) example() string {
	switch g.Form {
	case "labels":
		return g.Prefix + "=" + g.Encoding
	case "list":
		return g.Prefix + "," + g.Encoding
	}
	return g.Prefix + g.Encoding
}

// made reports whether a key made a signature.
func (g *Signature) made(sum, key, signed []byte) bool {
	if g.Algorithm == "ed25519" {
		return ed25519.Verify(key, signed, sum)
	}
	h := hmac.New(sha256.New, key)
	h.Write(signed)
	return hmac.Equal(sum, h.Sum(nil)) // in constant time
}
