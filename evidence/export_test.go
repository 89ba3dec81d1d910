package evidence

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/semelhq/semel/store"
)

// BlockSize is the size of the blocks in which Verify reads an export.
const BlockSize = blockSize

// CountEntries reads an export in blocks of a size.
func CountEntries(export io.Reader, size int) (n int, err error) {
	err = eachLine(export, size, func(l *line) bool {
		if l.isEntry {
			n++
		}
		return true
	})
	return n, err
}

// Rewrite reads the line of an entry and writes it as an export does.
func Rewrite(line []byte) ([]byte, error) {
	l, ok := parseEntry(line)
	if !ok {
		return nil, errLine
	}
	en := store.Entry{}
	en.Leaf, _ = fromMember(l.Leaf, l.Raw)
	if !bytes.Equal(l.Opening, null) {
		en.Opening, _ = fromMember(l.Opening, l.RawOpening)
	}
	var b bytes.Buffer
	enc := lineEncoder(&b)
	err := enc.Encode(lineOf(l.N, &en, true, l.Proof))
	return b.Bytes(), err
}

// SignForTest signs what a thief of the keys would.
func SignForTest(k *Keys, c Checkpoint) (string, error) { return c.sign(k.newest()) }

// LookOn is what a node does every Options.Every: nothing, where another one signs.
func LookOn(ctx context.Context, l *Log) error { return l.integrate(ctx, false, func(*head) {}) }

// Cosigner is the key of a witness.
type Cosigner struct {
	name    string
	private ed25519.PrivateKey
}

// GenerateCosigner makes the key of a witness.
func GenerateCosigner(name string) (*Cosigner, error) {
	_, private, err := ed25519.GenerateKey(nil)
	return &Cosigner{name, private}, err
}

// Public is the public key.
func (c *Cosigner) Public() *CosignerKey {
	public, _ := c.private.Public().(ed25519.PublicKey)
	return newCosignerKey(c.name, public)
}

// Sign makes the line of a signature.
func (c *Cosigner) Sign(body string, now time.Time) string {
	at := uint64(now.Unix())
	sig := binary.BigEndian.AppendUint32(nil, c.Public().hash)
	sig = binary.BigEndian.AppendUint64(sig, at)
	sig = append(sig, ed25519.Sign(c.private, cosigned(body, at))...)
	return fmt.Sprintf("\u2014 %s %s\n", c.name, base64.StdEncoding.EncodeToString(sig))
}
