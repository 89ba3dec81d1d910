package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/semelhq/semel/internal/replace"
)

// lastSigned is the newest checkpoint that this node has signed, or has found signed by another
// node. A log that does not contain it was cut off or put back by somebody who can write to the
// store, whatever its head says. Hold Log.turn to use it.
type lastSigned struct {
	name   string // name of the file; "": nothing outlives the process
	signed string // "": none yet
	stored string // the file's content
}

// openLastSigned reads the file and writes it again, so that a node that has no place to
// remember its checkpoints fails before it signs one.
func openLastSigned(name, origin string) (*lastSigned, error) {
	last := &lastSigned{name: name}
	if name == "" {
		return last, nil
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("evidence: signed_file: %w", err)
	}
	if len(text) > 0 {
		c, err := unsigned(string(text))
		if err != nil {
			return nil, fmt.Errorf("evidence: %s should have the checkpoint that was signed last: %w", name, err)
		}
		if c.Origin != origin {
			return nil, fmt.Errorf("evidence: %s is of the log %s, not of %s: each log needs a file of its own", name, c.Origin, origin)
		}
	}
	last.signed = string(text)
	return last, last.write()
}

var errSignedFile = errors.New("evidence: signed_file, where the checkpoint that was signed last is remembered, needs a directory that can be written and outlives restarts")

// remember records a newer checkpoint, and writes it to the file if there is one.
func (last *lastSigned) remember(signed string) error {
	last.signed = signed
	if last.name == "" || last.stored == signed {
		return nil
	}
	return last.write()
}

// write replaces the file. A crash before that leaves the old one, with a checkpoint that the
// log contains too. The checkpoint is public.
func (last *lastSigned) write() error {
	if err := replace.File(last.name, []byte(last.signed), 0o644); err != nil {
		return fmt.Errorf("%w: %w", errSignedFile, err)
	}
	last.stored = last.signed
	return nil
}

// recognize compares a head with the newest checkpoint that this node knows, and remembers the
// head's from then on. After an error, sign nothing.
func (l *Log) recognize(ctx context.Context, h *head) error {
	if h.Checkpoint == l.last.signed {
		return l.last.remember(h.Checkpoint) // this failed before, if the file has another one
	}
	if h.Checkpoint != "" {
		if _, err := l.trust.Open([]byte(h.Checkpoint)); err != nil {
			return l.halt(fmt.Errorf("%w: %w", ErrTampered, err))
		}
	}
	if l.last.signed != "" {
		named := *h
		named.at.Origin = l.keys.origin // a head without a checkpoint names none
		err := (&Reader{store: l.store, head: &named}).Contains(ctx, l.last.signed)
		switch {
		case errors.Is(err, ErrFork):
			return l.halt(l.last.rolledBack(err))
		case err != nil:
			return err
		}
	}
	if h.Checkpoint == "" {
		return nil
	}
	return l.last.remember(h.Checkpoint)
}

// rolledBack says what to do if the log lacks the checkpoint that was last signed.
func (last *lastSigned) rolledBack(fork error) error {
	if last.name == "" {
		return fmt.Errorf("%w: it doesn't contain what this process signed or found signed last: %w", ErrTampered, fork)
	}
	return fmt.Errorf("%w: it doesn't contain the checkpoint in %s, which was signed last: %w. If you restored the store yourself, stop the service, move that file away, and start it again",
		ErrTampered, last.name, fork)
}
