package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrTampered is in the log's error if the store doesn't have the signed entries. The log then
// signs nothing until the process restarts; [Verify] finds the fault.
var ErrTampered = errors.New("evidence: the store is not what the checkpoint says")

// maxStep is how many entries are integrated before they are signed.
const maxStep = 1 << 16

// Run integrates entries and signs a checkpoint every Options.Every until ctx is done, on any
// number of nodes, one of which does the work; then it signs a last one and hands it to the
// keepers. It reports errors to Options.OnError and continues.
func (l *Log) Run(ctx context.Context) error {
	keepers := l.startKeepers()
	tick := time.NewTicker(l.opts.Every)
	defer tick.Stop()
	upkeep := time.NewTicker(time.Minute)
	defer upkeep.Stop()
	for ctx.Err() == nil {
		l.report(ctx, l.integrate(ctx, false, keepers.tell))
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-upkeep.C:
			l.readLevel(ctx)
			if l.opts.KeepOpenings > 0 {
				l.report(ctx, l.eraseExpired(ctx))
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.MaxWait)
	defer cancel()
	l.report(last, l.integrate(last, true, keepers.tell))
	keepers.stop(last)
	return ctx.Err()
}

func (l *Log) report(ctx context.Context, err error) {
	if errors.Is(err, ErrFork) {
		l.forked.Store(&err)
	}
	if err != nil && !callctx.HungUp(ctx, err) {
		l.opts.OnError(err)
	}
}

// Integrate signs a checkpoint of all entries that are acknowledged so far.
func (l *Log) Integrate(ctx context.Context) error {
	return l.integrate(ctx, true, func(*head) {})
}

// integrate takes steps until all entries are integrated. Unless forced, it leaves that to the
// node that already does it, as long as that node does.
func (l *Log) integrate(ctx context.Context, force bool, tell func(*head)) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	for tries := 0; tries < 16; {
		h, more, err := l.step(ctx, force)
		switch {
		case err != nil:
			l.edge = nil // it may be ahead of the signed checkpoint
			return err
		case h != nil:
			tell(h)
			tries = 0
		case more: // another node was faster
			l.edge = nil
			tries++
		}
		if !more {
			return nil
		}
	}
	return nil
}

// step integrates up to maxStep entries, and returns the new head if there is one.
func (l *Log) step(ctx context.Context, force bool) (signed *head, more bool, err error) {
	if halted := l.halted.Load(); halted != nil {
		return nil, false, *halted
	}
	h, err := l.load(ctx)
	if err != nil {
		return nil, false, err
	}
	now, err := l.store.Now(ctx)
	if err != nil {
		return nil, false, err
	}
	others := !force && h.Node != "" && h.Node != l.opts.Node && now.Sub(h.value.At) < 5*l.opts.Every
	signers, err := l.signers(h)
	switch {
	case err != nil && others:
		return nil, false, nil // the keys were rotated: the other node has the new ones
	case err != nil:
		return nil, false, err
	}
	if err := l.recognize(ctx, h); err != nil || others {
		return nil, false, err
	}
	if err := l.align(ctx, h); err != nil {
		return nil, false, err
	}
	added, err := l.extend(ctx)
	if err != nil {
		return nil, false, err
	}
	if added == 0 && h.Checkpoint != "" && len(signers) == 1 {
		// There is nothing to sign; but the integrating node must show that it is alive, or
		// another would take over.
		return nil, false, nil
	}
	// Store the old checkpoint first. After a crash between this write and the next, a node
	// writes it again, with the same content.
	if h.Keep {
		if err := l.store.PutEvidenceTiles(ctx, map[string][]byte{keptName(h.Kept): []byte(h.Checkpoint)}); err != nil {
			return nil, false, err
		}
	}
	next, err := l.successor(h, now, signers)
	if err != nil {
		return nil, false, err
	}
	// A crash before this write leaves tiles that nobody reads yet and that the next node
	// writes again with the same content. A crash after it leaves nothing to do. If two nodes
	// sign different sizes, one of them finds the other's here, so that all signed checkpoints
	// of a log belong to one history.
	ok, err := l.swap(ctx, h, next)
	if err != nil || !ok {
		return nil, true, err
	}
	// A crash before this leaves the earlier checkpoint, which the log also contains. If it
	// fails, the next step tries again before it signs anything.
	l.report(ctx, l.last.remember(next.Checkpoint))
	return next, added == maxStep, nil
}

// successor returns the head after h, with a checkpoint of the edge, signed by the signers.
func (l *Log) successor(h *head, now store.Instant, signers []note.Signer) (*head, error) {
	next := *h
	next.Node, next.Key = l.opts.Node, keyName(l.keys.newest())
	if h.Keep {
		next.Kept, next.Keep = h.Kept+1, false
	}
	if h.Checkpoint == "" || now.Sub(h.KeptAt) >= l.opts.KeepEvery || len(signers) > 1 {
		next.Keep, next.KeptAt = true, now // a checkpoint with both keys' signatures must stay forever
	}
	next.at = Checkpoint{Origin: l.keys.origin, Size: l.edge.size, Root: l.edge.root()}
	var err error
	if next.Checkpoint, err = next.at.sign(signers...); err != nil {
		return nil, err
	}
	if cosigned := l.cosigned.Swap(nil); cosigned != nil {
		next.Cosigned = *cosigned
	}
	return &next, nil
}

// signers returns the signers of the next checkpoint: the newest key, and the one before it if
// that signed last.
func (l *Log) signers(h *head) ([]note.Signer, error) {
	newest := l.keys.newest()
	if h.Key == "" || h.Key == keyName(newest) {
		return []note.Signer{newest}, nil
	}
	for _, s := range l.keys.signers {
		if h.Key == keyName(s) {
			return []note.Signer{newest, s}, nil
		}
	}
	return nil, fmt.Errorf("evidence: the log was signed last by %s, which is not among the keys of this node", h.Key)
}

// align makes the edge match the head, and checks that it has the signed root.
func (l *Log) align(ctx context.Context, h *head) (err error) {
	if l.edge == nil || l.edge.size != h.at.Size {
		if l.edge, err = readEdge(ctx, l.store, h.at.Size); err != nil {
			return err
		}
	}
	if h.Checkpoint == "" {
		return nil
	}
	if root := l.edge.root(); root != h.at.Root {
		return l.halt(fmt.Errorf("%w: the root of %d entries is %v, and %v was signed", ErrTampered, h.at.Size, root, h.at.Root))
	}
	return nil
}

// halt stops this node from signing anything more.
func (l *Log) halt(err error) error {
	l.halted.Store(&err)
	return err
}

// extend adds up to maxStep newly numbered entries to the edge, and stores the tiles that
// became full.
func (l *Log) extend(ctx context.Context) (added int, err error) {
	for added < maxStep {
		hashes, err := l.hashes(ctx, l.edge.size, min(readBatch, maxStep-added))
		if err != nil || len(hashes) == 0 {
			return added, err
		}
		tiles := map[string][]byte{}
		for _, hash := range hashes {
			l.edge.add(hash, func(tile tlog.Tile, data []byte) {
				tiles[tile.Path()] = bytes.Clone(data)
			})
		}
		// A crash after this write leaves tiles beyond the checkpoint, which are
		// written again with the same content.
		if len(tiles) > 0 {
			if err := l.store.PutEvidenceTiles(ctx, tiles); err != nil {
				return added, err
			}
		}
		added += len(hashes)
	}
	return added, nil
}

// hashes returns the leaf hashes of up to limit entries from a number on.
func (l *Log) hashes(ctx context.Context, from uint64, limit int) ([][32]byte, error) {
	if hr := l.store.Extras().Hashes; hr != nil {
		if known, err := hr.ReadEvidenceHashes(ctx, from, limit); err != nil || len(known) > 0 {
			return known, err
		}
	}
	entries, err := l.store.ReadEvidence(ctx, from, limit)
	hashes := make([][32]byte, len(entries))
	for i := range entries {
		hashes[i] = leafHash(entries[i].Leaf)
	}
	return hashes, err
}
