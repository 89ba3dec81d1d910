package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
)

// evidence is the evidence log.
//
// Its entries are in the batch of the record that they are about, so a crash
// leaves both or neither. The goroutine that writes batches numbers them as it
// does so, and the count is in the same batch: numbers have no gaps, and the next
// Open goes on from there.
type evidence struct {
	// durable is how many entries can't be lost. Nobody is shown more: whoever
	// signed what a crash then takes back would be caught telling two stories.
	durable atomic.Uint64
	erasing sync.Mutex // held from reading openings until they are replaced
}

// AppendEvidence is [semel.EvidenceStore.AppendEvidence]. The entries are in one
// batch, which others share: a crash before it is durable leaves none of them, and
// nobody was answered; a crash after it leaves all. When ctx ends meanwhile,
// AppendEvidence returns at once and the write goes on.
func (s *Store) AppendEvidence(ctx context.Context, list []semel.Entry) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(list) == 0 {
		return nil
	}
	return s.writeBare(ctx, &op{evidence: list})
}

// ReadEvidence is [semel.EvidenceStore.ReadEvidence]. It reads a state of the
// database while others write on, and holds none of them up. What it returns is
// durable.
func (s *Store) ReadEvidence(ctx context.Context, from uint64, limit int) (list []semel.Entry, err error) {
	snap, end, leave, err := s.view(ctx, from, limit)
	if snap == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	openings, err := chunks(snap, openingPrefix, end)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, openings.Close()) }()
	list = make([]semel.Entry, 0, end-from)
	var opened [][]byte
	return list, s.leaves(ctx, snap, from, end, func(c *chunk, first, last uint64) (err error) {
		if opened, err = c.openings(openings, opened); err != nil {
			return err
		}
		for i := first; i < last; i++ {
			en := semel.Entry{Subject: c.subjects[i], Leaf: c.leaves[i]}
			if opened != nil {
				en.Opening = opened[i]
			}
			list = append(list, en)
		}
		return nil
	})
}

// view is a state of the database to read durable entries from, and the number
// before which they end. It is nil where there are none from a number on.
func (s *Store) view(ctx context.Context, from uint64, limit int) (snap *pebble.Snapshot, end uint64, leave func() error, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, nil, err
	}
	end = s.evidence.durable.Load()
	if from >= end || limit <= 0 {
		s.leave()
		return nil, 0, nil, nil
	}
	if end-from > uint64(limit) {
		end = from + uint64(limit)
	}
	snap = s.db.NewSnapshot()
	return snap, end, func() error {
		defer s.leave()
		return snap.Close()
	}, nil
}

// leaves calls f with the chunks that have entries from a number to before another,
// and which of theirs these are.
func (s *Store) leaves(ctx context.Context, snap *pebble.Snapshot, from, end uint64, f func(c *chunk, first, last uint64) error) (err error) {
	it, err := chunks(snap, leafPrefix, end)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, it.Close()); err != nil {
			err = fmt.Errorf("evidence from number %d on: %w", from, err)
		}
	}()
	var c chunk
	next := from // the number that is wanted
	for ok := it.SeekLT(chunkKey(leafPrefix, from+1)); ok && next < end; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.read(it, true); err != nil {
			return err
		}
		if !c.has(next) {
			break
		}
		last := min(uint64(len(c.leaves)), end-c.first)
		if err := f(&c, next-c.first, last); err != nil {
			return err
		}
		next = c.first + last
	}
	if err := it.Error(); err != nil {
		return err
	}
	if next < end {
		return fmt.Errorf("number %d is missing", next)
	}
	return nil
}

// chunks goes through chunks that begin before a number.
func chunks(r pebble.Reader, prefix byte, end uint64) (*pebble.Iterator, error) {
	return r.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: chunkKey(prefix, end)})
}

// read reads the chunk of leaves that an iterator has come to. It stays until the
// next one is read, or is kept in memory of its own.
func (c *chunk) read(it *pebble.Iterator, keep bool) error {
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	var ok bool
	if c.first, ok = parseChunkKey(it.Key()); !ok {
		return errChunk
	}
	if keep {
		c.plain = nil
	}
	if c.plain, err = unpack(c.plain, value); err != nil {
		return err
	}
	return c.parseLeaves(c.plain)
}

// openings reads the openings of the chunk, in memory of their own, or returns nil
// if it has none. The iterator stands before them. The result uses to's memory.
func (c *chunk) openings(it *pebble.Iterator, to [][]byte) ([][]byte, error) {
	if !it.SeekGE(chunkKey(openingPrefix, c.first)) {
		return nil, it.Error()
	}
	first, ok := parseChunkKey(it.Key())
	if !ok {
		return nil, errChunk
	}
	if first != c.first {
		return nil, nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	plain, err := unpack(nil, value)
	if err != nil {
		return nil, err
	}
	opened, err := parseOpenings(to[:0], plain)
	if err == nil && len(opened) != len(c.leaves) {
		err = errChunk
	}
	return opened, err
}

// EraseEvidence is [semel.EvidenceStore.EraseEvidence]. From then on nobody can
// read the openings through the store. Their bytes leave the disk when Pebble next
// merges the tables that hold them.
//
// It is one batch: a crash before it is durable leaves all of the openings, and
// erasing again is harmless; a crash after it leaves nothing to do.
func (s *Store) EraseEvidence(ctx context.Context, from, to uint64) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.evidence.erasing.Lock()
	defer s.evidence.erasing.Unlock()
	if to = min(to, s.evidence.durable.Load()); from >= to {
		return nil
	}
	replaced, upper, err := s.edges(from, to)
	if err != nil {
		return fmt.Errorf("erase evidence: %w", err)
	}
	b := s.db.NewBatch()
	if from < upper {
		must(b.DeleteRange(chunkKey(openingPrefix, from), chunkKey(openingPrefix, upper), nil))
	}
	for first, value := range replaced {
		must(b.Set(chunkKey(openingPrefix, first), value, nil))
	}
	o := &op{batch: b}
	err = s.writeBare(ctx, o)
	if err != nil && !errors.Is(err, semel.ErrNotApplied) {
		// Not before the batch can be read may the next one read what it replaces.
		<-o.group.logged
	}
	return err
}

// edges reads the chunks of openings that are erased in part: at most the first and
// the last one. It returns what is left of them, and the number before which whole
// chunks go.
func (s *Store) edges(from, to uint64) (replaced map[uint64][]byte, upper uint64, err error) {
	it, err := chunks(s.db, openingPrefix, to)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	replaced, upper = map[uint64][]byte{}, to
	for _, before := range []uint64{from + 1, to} {
		if !it.SeekLT(chunkKey(openingPrefix, before)) {
			continue
		}
		first, ok := parseChunkKey(it.Key())
		value, err := it.ValueAndErr()
		if err != nil || !ok {
			return nil, 0, errors.Join(errChunk, err)
		}
		plain, err := unpack(nil, value)
		if err != nil {
			return nil, 0, err
		}
		opened, err := parseOpenings(nil, plain)
		if err != nil {
			return nil, 0, err
		}
		end := first + uint64(len(opened))
		if end <= from || first >= from && end <= to {
			continue // nothing of it goes, or all
		}
		if first >= from {
			upper = first
		}
		replaced[first] = blank(opened, int(max(from, first)-first), int(min(to, end)-first))
	}
	return replaced, upper, it.Error()
}

// PutEvidenceTiles is [semel.EvidenceStore.PutEvidenceTiles]. The tiles are in one
// batch: a crash before it is durable leaves none of them, and whoever integrates
// the log makes them again, from the same leaves; a crash after it leaves all.
func (s *Store) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(tiles) == 0 {
		return nil
	}
	b := s.db.NewBatch() // in memory of its own: the tiles are the caller's when this returns
	for name, tile := range tiles {
		must(b.Set(tileKey(name), tile, nil))
	}
	return s.writeBare(ctx, &op{batch: b})
}

// EvidenceTile is [semel.EvidenceStore.EvidenceTile]. A tile may not be durable yet
// when it is first returned. Whatever its reader writes by it is later in the log,
// so it is lost with the tile or not at all.
func (s *Store) EvidenceTile(ctx context.Context, name string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	value, closer, err := s.db.Get(tileKey(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, semel.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("tile %s: %w", name, err)
	}
	tile := bytes.Clone(value)
	if tile == nil {
		tile = []byte{}
	}
	return tile, closer.Close()
}
