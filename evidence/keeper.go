package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/engine/background"
	"github.com/semelhq/semel/internal/replace"
	"golang.org/x/mod/sumdb/tlog"
)

// Keeper keeps checkpoints in a place that doesn't belong to the owner of the store and the
// signing key, so that nobody can take them back.
type Keeper interface {
	// Keep gets a signed checkpoint. To compare it with an older one, call prove for the proof
	// that the log contains its state at that size. Keep returns the checkpoint with further
	// signatures, or "". It misses checkpoints while it is busy, and gets some again after a
	// restart. One goroutine at a time calls it.
	Keep(ctx context.Context, signed string, prove func(old uint64) (tlog.TreeProof, error)) (cosigned string, err error)
}

// ErrFork is in a keeper's error if the log doesn't contain an earlier checkpoint.
var ErrFork = errors.New("evidence: a checkpoint that was kept is not of this log's history")

// keepers hands checkpoints on. When a keeper is done with one, it gets the newest one there
// is.
type keepers struct {
	log  *Log
	each []*keeping
	work background.Group
}

type keeping struct {
	Keeper
	newest chan *head // holds only the last one
}

func (l *Log) startKeepers() *keepers {
	ks := &keepers{log: l}
	for _, k := range l.opts.Keepers {
		one := &keeping{Keeper: k, newest: make(chan *head, 1)}
		ks.each = append(ks.each, one)
		ks.work.Go(func() {
			for h := range one.newest {
				ks.keep(one, h)
			}
		})
	}
	return ks
}

// Only one goroutine at a time calls tell.
func (ks *keepers) tell(h *head) {
	for _, k := range ks.each {
		select {
		case <-k.newest: // nobody has taken it yet
		default:
		}
		k.newest <- h
	}
}

func (ks *keepers) keep(k *keeping, h *head) {
	ctx, cancel := context.WithTimeout(context.Background(), ks.log.opts.MaxWait)
	defer cancel()
	r := &Reader{store: ks.log.store, head: h}
	cosigned, err := k.Keep(ctx, h.Checkpoint, func(old uint64) (tlog.TreeProof, error) { return r.ProveTree(ctx, old) })
	if err != nil {
		ks.log.report(ctx, fmt.Errorf("evidence: the checkpoint of size %d was not kept: %w", h.at.Size, err))
		return
	}
	if cosigned != "" {
		ks.log.cosigned.Store(&cosigned)
	}
}

// stop waits until the keepers are done.
func (ks *keepers) stop(ctx context.Context) {
	for _, k := range ks.each {
		close(k.newest)
	}
	_ = ks.work.Close(ctx)
}

// Directory keeps checkpoints as files in a directory, which should be on another
// machine, or be copied there: latest is the newest one, and a file for each day has
// one a minute.
type Directory struct {
	dir  string
	last time.Time
}

// NewDirectory keeps checkpoints in a directory, and creates it if necessary.
func NewDirectory(dir string) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return &Directory{dir: dir}, nil
}

// dayEvery is the pause between two checkpoints of a day's file.
const dayEvery = time.Minute

// Keep is [Keeper.Keep]. It refuses a checkpoint that doesn't contain its newest one.
func (d *Directory) Keep(_ context.Context, signed string, prove func(old uint64) (tlog.TreeProof, error)) (string, error) {
	c, err := unsigned(signed)
	if err != nil {
		return "", err
	}
	name := filepath.Join(d.dir, "latest")
	switch old, err := os.ReadFile(name); {
	case err == nil:
		if err := contains(c, string(old), prove); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := replace.File(name, []byte(signed), 0o644); err != nil {
		return "", err
	}
	now := time.Now().UTC()
	if now.Sub(d.last) < dayEvery {
		return "", nil
	}
	d.last = now
	// A crash during the write leaves part of a checkpoint at the end, which readers skip.
	f, err := os.OpenFile(filepath.Join(d.dir, now.Format(time.DateOnly)+".checkpoints"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(signed)
	return "", errors.Join(err, f.Sync(), f.Close())
}

// contains checks that a log contains the state of a signed checkpoint.
func contains(c Checkpoint, signed string, prove func(old uint64) (tlog.TreeProof, error)) error {
	old, err := unsigned(signed)
	switch {
	case err != nil:
		return err
	case old.Origin != c.Origin:
		return fmt.Errorf("%w: it is of %s", ErrFork, old.Origin)
	case old.Size > c.Size:
		return fmt.Errorf("%w: it has %d entries, and this one has %d", ErrFork, old.Size, c.Size)
	case old.Size == 0:
		return nil
	case old.Size == c.Size:
		if old.Root != c.Root {
			return fmt.Errorf("%w: another root at %d entries", ErrFork, c.Size)
		}
		return nil
	}
	proof, err := prove(old.Size)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(proof, int64(c.Size), c.Root, int64(old.Size), old.Root); err != nil {
		return fmt.Errorf("%w: at %d entries", ErrFork, old.Size)
	}
	return nil
}

// SplitCheckpoints returns the signed checkpoints in a text, such as a file of a [Directory],
// and skips anything else.
func SplitCheckpoints(text []byte) []string {
	var all []string
	var one bytes.Buffer
	flush := func() {
		if _, err := unsigned(one.String()); err == nil {
			all = append(all, one.String())
		}
		one.Reset()
	}
	signed := false
	for line := range strings.Lines(string(text)) {
		is := strings.HasPrefix(line, "\u2014 ")
		if signed && !is {
			flush()
		}
		signed = is
		one.WriteString(line)
	}
	flush()
	return all
}
