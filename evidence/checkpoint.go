package evidence

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is the log at one size: all entries before it, in order, have this root.
type Checkpoint struct {
	Origin string
	Size   uint64
	Root   tlog.Hash
}

// body returns the text to sign, in the form of C2SP's tlog-checkpoint.
func (c Checkpoint) body() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)
}

// sign signs c with all signers.
func (c Checkpoint) sign(signers ...note.Signer) (string, error) {
	signed, err := note.Sign(&note.Note{Text: c.body()}, signers...)
	if err != nil {
		return "", fmt.Errorf("evidence: sign the checkpoint: %w", err)
	}
	return string(signed), nil
}

var errNoCheckpoint = errors.New("it is no checkpoint: three lines with origin, size and root")

// parseBody reads the text of a checkpoint. Further lines are extensions, which it ignores.
func parseBody(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return c, errNoCheckpoint
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	if err != nil || strconv.FormatUint(size, 10) != lines[1] {
		return c, errNoCheckpoint
	}
	root, err := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return c, errNoCheckpoint
	}
	c.Origin, c.Size = lines[0], size
	copy(c.Root[:], root)
	return c, nil
}

// unsigned reads a checkpoint from a trusted place, or one that was verified otherwise.
func unsigned(signed string) (Checkpoint, error) {
	body, _, ok := parts(signed)
	if !ok {
		return Checkpoint{}, errNoCheckpoint
	}
	return parseBody(body)
}

// parts splits a signed text into the text that was signed and the lines with signatures.
func parts(signed string) (body, signatures string, ok bool) {
	body, signatures, ok = strings.Cut(signed, "\n\n")
	return body + "\n", signatures, ok
}
