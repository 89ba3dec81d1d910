package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/semelhq/semel/internal/canon"
)

// Fingerprint is a versioned digest of a payload. Two deliveries under one key
// must have equal fingerprints (CORE-ID.2). The zero Fingerprint says that the
// payload is not compared; it equals only itself.
type Fingerprint struct {
	scheme Scheme
	sum    [sha256.Size]byte
}

// Scheme is the way that a fingerprint was computed. Fingerprints of different schemes are
// never equal, so a changed rule shows as a conflict and not as a false match.
type Scheme uint8

// The schemes. Values below 64 belong to this module; doors of others may use the rest. A
// number never changes its meaning, because records have it.
const (
	SchemeRaw  Scheme = 1 // the bytes
	SchemeJSON Scheme = 2 // RFC 8785 with exact decimals
	SchemeForm Scheme = 3 // sorted name-value pairs
	// SchemeParts is a multipart body by its parts, whatever its boundary.
	SchemeParts Scheme = 4
	// SchemeEvent covers the content of a webhook's event as SchemeJSON does, and its kind, if
	// a header says that and no signature covers it.
	SchemeEvent Scheme = 8
	// SchemeRestated is added to SchemeJSON: the payload has what the key was made of in the
	// key's form, a value as its text and a cart as its digest.
	SchemeRestated Scheme = 16
	// SchemeKeyless is added to one of the others: the fingerprint leaves out the places in the
	// payload where the call's key may be.
	SchemeKeyless Scheme = 32
)

// FingerprintOf digests the parts, each length-framed, under a scheme.
func FingerprintOf(scheme Scheme, parts ...[]byte) Fingerprint {
	h := sha256.New()
	var n [binary.MaxVarintLen64]byte
	h.Write([]byte{byte(scheme)})
	for _, p := range parts {
		h.Write(n[:binary.PutUvarint(n[:], uint64(len(p)))])
		h.Write(p)
	}
	f := Fingerprint{scheme: scheme}
	h.Sum(f.sum[:0])
	return f
}

// FingerprintJSON digests a JSON text by its meaning: the order of members,
// white space and the way a number is written do not matter, but two numbers
// that differ in value always do, even where binary64 can't tell them apart.
// Duplicate member names and invalid text are refused.
func FingerprintJSON(text []byte) (Fingerprint, error) {
	h := sha256.New()
	h.Write([]byte{byte(SchemeJSON)})
	if err := canon.WriteFramed(h, text, canon.Exact); err != nil { // as FingerprintOf frames a part
		return Fingerprint{}, &Error{Code: CodeInvalidCall, Message: "the payload is not strict JSON", Err: err}
	}
	f := Fingerprint{scheme: SchemeJSON}
	h.Sum(f.sum[:0])
	return f, nil
}

// NewFingerprint makes a fingerprint from a digest that the caller computed,
// for instance while streaming.
func NewFingerprint(scheme Scheme, sum [sha256.Size]byte) Fingerprint {
	return Fingerprint{scheme: scheme, sum: sum}
}

// Scheme returns how the fingerprint was computed; zero for the zero Fingerprint.
func (f Fingerprint) Scheme() Scheme { return f.scheme }

// WithScheme returns the same digest under another scheme, for packages that make fingerprints.
func (f Fingerprint) WithScheme(s Scheme) Fingerprint { return Fingerprint{scheme: s, sum: f.sum} }

// IsZero reports whether the payload is not compared.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String returns the scheme and the digest in hexadecimal, such as "2:9f86…"; it is empty for
// the zero Fingerprint.
func (f Fingerprint) String() string {
	text, _ := f.MarshalText() // which can't fail
	return string(text)
}

// MarshalText is [Fingerprint.String].
func (f Fingerprint) MarshalText() ([]byte, error) {
	return f.AppendText(make([]byte, 0, 4+2*len(f.sum)))
}

// AppendText appends [Fingerprint.String].
func (f Fingerprint) AppendText(b []byte) ([]byte, error) {
	if f.IsZero() {
		return b, nil
	}
	b = append(strconv.AppendUint(b, uint64(f.scheme), 10), ':')
	return hex.AppendEncode(b, f.sum[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	*f = Fingerprint{}
	if len(text) == 0 {
		return nil
	}
	var scheme uint8
	var sum string
	if _, err := fmt.Sscanf(string(text), "%d:%s", &scheme, &sum); err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != len(f.sum) {
		return fmt.Errorf("fingerprint: the digest is not %d bytes in hexadecimal", len(f.sum))
	}
	f.scheme = Scheme(scheme)
	copy(f.sum[:], raw)
	return nil
}

// AppendBinary appends the scheme byte and the 32 bytes of the digest.
func (f Fingerprint) AppendBinary(b []byte) ([]byte, error) {
	return append(append(b, byte(f.scheme)), f.sum[:]...), nil
}

// UnmarshalBinary reads what AppendBinary wrote.
func (f *Fingerprint) UnmarshalBinary(b []byte) error {
	if len(b) != 1+len(f.sum) {
		return fmt.Errorf("fingerprint: %d bytes instead of %d", len(b), 1+len(f.sum))
	}
	f.scheme = Scheme(b[0])
	copy(f.sum[:], b[1:])
	return nil
}
