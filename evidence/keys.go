package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Keys are the secrets of a log: the keys that sign its checkpoints, and the one that blinds
// names. All nodes of a log have the same keys.
type Keys struct {
	origin  string
	private []string // note keys, the newest last
	signers []note.Signer
	public  []string
	secret  [32]byte
}

const secretPrefix = "SEMEL+BLIND+"

// GenerateKeys makes the keys of a new log. The origin names it in its checkpoints,
// as a URL without a scheme does: semel.example.com/production.
func GenerateKeys(origin string) (*Keys, error) {
	k := &Keys{}
	if _, err := rand.Read(k.secret[:]); err != nil {
		return nil, fmt.Errorf("evidence: random secret: %w", err)
	}
	return k, k.generate(origin)
}

// Rotated returns k with a further key, which signs from the next checkpoint on. The previous
// key signs the first of these, too. The blinding key stays: with another one, names would
// change.
func (k *Keys) Rotated() (*Keys, error) {
	next, err := ParseKeys(k.Text())
	if err != nil {
		return nil, err
	}
	return next, next.generate(k.origin)
}

func (k *Keys) generate(origin string) error {
	if origin == "" || strings.ContainsAny(origin, "+ \t\r\n") || len(origin) > 200 {
		return errors.New("evidence: the origin has 1 to 200 characters, none of them a space or +")
	}
	private, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	return k.add(private)
}

func (k *Keys) add(private string) error {
	signer, err := note.NewSigner(private)
	if err != nil {
		return errors.New("evidence: a line is no private key")
	}
	if k.origin != "" && k.origin != signer.Name() {
		return fmt.Errorf("evidence: keys of two logs, %s and %s", k.origin, signer.Name())
	}
	// PRIVATE+KEY+name+hash+base64 of the algorithm and the seed; only base64 may
	// have a + too.
	parts := strings.SplitN(private, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return errors.New("evidence: a line is no private key")
	}
	pub, _ := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	public, err := note.NewEd25519VerifierKey(signer.Name(), pub)
	if err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	k.origin = signer.Name()
	k.private, k.signers, k.public = append(k.private, private), append(k.signers, signer), append(k.public, public)
	return nil
}

// ParseKeys reads the output of [Keys.Text]. It ignores empty lines and comments after #.
func ParseKeys(text []byte) (*Keys, error) {
	k := &Keys{}
	blind := false
	for line := range significant(text) {
		if rest, ok := strings.CutPrefix(line, secretPrefix); ok {
			raw, err := base64.StdEncoding.DecodeString(rest)
			if err != nil || len(raw) != len(k.secret) || blind {
				return nil, errors.New("evidence: there must be one blinding key of 32 bytes")
			}
			copy(k.secret[:], raw)
			blind = true
			continue
		}
		if err := k.add(line); err != nil {
			return nil, err
		}
	}
	if !blind || len(k.signers) == 0 {
		return nil, errors.New("evidence: a file of keys has a blinding key and one or more private keys")
	}
	return k, nil
}

// Text returns the keys in the form of a file. It is secret.
func (k *Keys) Text() []byte {
	var b bytes.Buffer
	b.WriteString("# The keys of an evidence log: whoever has them can sign another history.\n")
	b.WriteString(secretPrefix + base64.StdEncoding.EncodeToString(k.secret[:]) + "\n")
	for _, line := range k.private {
		b.WriteString(line + "\n")
	}
	return b.Bytes()
}

// Origin returns the name of the log.
func (k *Keys) Origin() string { return k.origin }

// Trust returns the public keys, without limits, for anybody who verifies.
func (k *Keys) Trust() *Trust {
	t := &Trust{}
	for _, line := range k.public {
		_ = t.add(line) // it was made from a private key
	}
	return t
}

func (k *Keys) newest() note.Signer { return k.signers[len(k.signers)-1] }

// Trust is a set of public keys that may sign a log's checkpoints.
type Trust struct {
	keys []trustedKey
}

type trustedKey struct {
	note.Verifier
	line        string
	from, until uint64 // sizes of the log; until is 0 for no end
}

// ParseTrust reads public keys, one a line, each with the sizes between which its signature
// counts, unless it counts for all:
//
//	example.com/log+4a1c2b3d+AaBb… until=70000
//	example.com/log+99887766+AcDd… from=70000
func ParseTrust(text []byte) (*Trust, error) {
	t := &Trust{}
	for line := range significant(text) {
		if err := t.add(line); err != nil {
			return nil, err
		}
	}
	if len(t.keys) == 0 {
		return nil, errors.New("evidence: there is no public key")
	}
	return t, nil
}

func (t *Trust) add(line string) error {
	words := strings.Fields(line)
	v, err := note.NewVerifier(words[0])
	if err != nil {
		return errors.New("evidence: a line is no public key")
	}
	if len(t.keys) > 0 && t.keys[0].Name() != v.Name() {
		return fmt.Errorf("evidence: public keys of two logs, %s and %s", t.keys[0].Name(), v.Name())
	}
	key := trustedKey{Verifier: v, line: words[0]}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 63)
		switch {
		case err == nil && name == "from":
			key.from = n
		case err == nil && name == "until":
			key.until = n
		default:
			return fmt.Errorf("evidence: %q is not from= or until= and a size", word)
		}
	}
	t.keys = append(t.keys, key)
	return nil
}

// Origin returns the name of the log.
func (t *Trust) Origin() string { return t.keys[0].Name() }

// Keys returns the public keys, without their limits.
func (t *Trust) Keys() []string {
	var all []string
	for _, key := range t.keys {
		all = append(all, key.line)
	}
	return all
}

// Text returns the keys in the form of a file.
func (t *Trust) Text() []byte {
	var b bytes.Buffer
	for _, key := range t.keys {
		b.WriteString(key.line)
		if key.from != 0 {
			fmt.Fprintf(&b, " from=%d", key.from)
		}
		if key.until != 0 {
			fmt.Fprintf(&b, " until=%d", key.until)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// Open verifies a signed checkpoint: one of the keys signed it, and counts for its
// size.
func (t *Trust) Open(signed []byte) (Checkpoint, error) {
	verifiers := make([]note.Verifier, len(t.keys))
	for i := range t.keys {
		verifiers[i] = t.keys[i].Verifier
	}
	n, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil {
		if _, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
			return Checkpoint{}, errors.New("no trusted key signed the checkpoint")
		}
		return Checkpoint{}, errors.New("the signature of the checkpoint is wrong, or it is none")
	}
	c, err := parseBody(n.Text)
	if err != nil {
		return c, err
	}
	if c.Origin != t.Origin() {
		return c, fmt.Errorf("the checkpoint is of the log %s, not of %s", c.Origin, t.Origin())
	}
	for _, sig := range n.Sigs {
		for i := range t.keys {
			key := &t.keys[i]
			if key.KeyHash() == sig.Hash && c.Size >= key.from && (key.until == 0 || c.Size <= key.until) {
				return c, nil
			}
		}
	}
	return c, fmt.Errorf("the key that signed the checkpoint does not count for the size %d", c.Size)
}

// significant yields the lines that aren't empty or comments, without white space around them.
func significant(text []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}
