package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A witness signs in the form of C2SP's tlog-cosignature: it states that it saw a checkpoint at
// a time, and that this contains everything that it saw before.
const algCosignature = 4

// CosignerKey is the public key of a witness.
type CosignerKey struct {
	name   string
	hash   uint32
	public ed25519.PublicKey
}

func newCosignerKey(name string, public ed25519.PublicKey) *CosignerKey {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%c%s", name, algCosignature, public))
	return &CosignerKey{name: name, public: public, hash: binary.BigEndian.Uint32(sum[:])}
}

// String returns the key as a note's verifier key.
func (k *CosignerKey) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.hash, base64.StdEncoding.EncodeToString(append([]byte{algCosignature}, k.public...)))
}

// ParseCosignerKey reads the output of [CosignerKey.String].
func ParseCosignerKey(text string) (*CosignerKey, error) {
	parts := strings.SplitN(strings.TrimSpace(text), "+", 3)
	bad := errors.New("evidence: it is no key of a witness: name+hash+base64")
	if len(parts) != 3 || parts[0] == "" {
		return nil, bad
	}
	hash, err := hex.DecodeString(parts[1])
	raw, err2 := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || err2 != nil || len(hash) != 4 || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algCosignature {
		return nil, bad
	}
	k := newCosignerKey(parts[0], raw[1:])
	if k.hash != binary.BigEndian.Uint32(hash) {
		return nil, bad
	}
	return k, nil
}

func cosigned(body string, at uint64) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, body)
}

// verify finds the key's signature among lines, and checks it.
func (k *CosignerKey) verify(body, lines string) (line string, at time.Time, err error) {
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != k.name {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(words[2])
		if err != nil || len(raw) != 4+8+ed25519.SignatureSize || binary.BigEndian.Uint32(raw) != k.hash {
			continue
		}
		seconds := binary.BigEndian.Uint64(raw[4:])
		if ed25519.Verify(k.public, cosigned(body, seconds), raw[12:]) {
			return strings.TrimSuffix(line, "\n") + "\n", time.Unix(int64(seconds), 0).UTC(), nil
		}
	}
	return "", time.Time{}, fmt.Errorf("evidence: the witness %s has not signed it", k.name)
}

// Verify checks that the witness signed a checkpoint, and returns when.
func (k *CosignerKey) Verify(signed string) (time.Time, error) {
	body, lines, _ := parts(signed)
	_, at, err := k.verify(body, lines)
	return at, err
}
