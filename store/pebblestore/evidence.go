package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// putEntry adds an entry of the evidence log to a batch: a key for its leaf, one for its
// opening and one for each of its subjects.
//
// They are in the batch of the record that the entry is about, so a crash leaves all of it or
// nothing. Entries get their numbers when they are put in the log, and the count is in the same
// batch: numbers have no gaps, and the next Open continues from there.
func putEntry(b *pebble.Batch, en *store.Entry, number uint64) {
	must(b.Set(entryKey(leafPrefix, number), slices.Concat(en.Subject[:], en.Leaf), nil))
	if en.Opening != nil {
		must(b.Set(entryKey(openingPrefix, number), en.Opening, nil))
	}
	if en.Subject != (store.Subject{}) {
		must(b.Set(subjectKey(&en.Subject, number), nil, nil))
	}
	for i := range en.Also {
		must(b.Set(subjectKey(&en.Also[i], number), nil, nil))
	}
}

// AppendEvidence is [store.EvidenceLog.AppendEvidence]. The entries are in one batch, which
// others share: a crash before it is durable leaves none of them, and nobody got an answer; a
// crash after it leaves all. If ctx ends during the sync, AppendEvidence returns at once and
// the write continues.
func (s *Store) AppendEvidence(ctx context.Context, list []store.Entry) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(list) == 0 {
		return nil
	}
	return s.writeBare(ctx, &op{evidence: list})
}

// ReadEvidence is [store.EvidenceLog.ReadEvidence]. It reads a snapshot, so writers don't wait
// for it, and returns durable entries only.
func (s *Store) ReadEvidence(ctx context.Context, from uint64, limit int) (list []store.Entry, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	end := s.commits.entries.Load()
	if from >= end || limit <= 0 {
		return nil, nil
	}
	end = from + min(end-from, uint64(limit))
	snap := s.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	list = make([]store.Entry, 0, end-from)
	err = numbers(ctx, snap, entryKey(leafPrefix, from), entryKey(leafPrefix, end), func(number uint64, leaf []byte) error {
		if number != from+uint64(len(list)) {
			return errMissing
		}
		if len(leaf) < len(store.Subject{}) {
			return errors.New("it is damaged")
		}
		list = append(list, store.Entry{Subject: store.Subject(leaf), Leaf: bytes.Clone(leaf[len(store.Subject{}):])})
		return nil
	})
	if err == nil && uint64(len(list)) < end-from {
		err = errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("evidence: entry number %d: %w", from+uint64(len(list)), err)
	}
	err = numbers(ctx, snap, entryKey(openingPrefix, from), entryKey(openingPrefix, end), func(number uint64, opening []byte) error {
		list[number-from].Opening = append([]byte{}, opening...) // which may be empty, but isn't nil
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("evidence: an opening: %w", err)
	}
	return list, nil
}

var (
	errMissing = errors.New("it is missing")
	errEnough  = errors.New("no more is wanted")
)

// numbers calls f for each key from low to before high, until f fails, with the number of the
// entry, which ends the key, and the value.
func numbers(ctx context.Context, r pebble.Reader, low, high []byte, f func(number uint64, value []byte) error) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != len(low) {
			return fmt.Errorf("there is a key of %d bytes", len(it.Key()))
		}
		value, err := it.ValueAndErr()
		if err := errors.Join(ctx.Err(), err); err != nil {
			return err
		}
		if err := f(binary.BigEndian.Uint64(it.Key()[len(low)-8:]), value); err != nil {
			return err
		}
	}
	return it.Error()
}

// FindEvidence is [store.EvidenceLog.FindEvidence].
func (s *Store) FindEvidence(ctx context.Context, subject store.Subject, from uint64, limit int) (list []uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	end := s.commits.entries.Load()
	if from >= end || limit <= 0 || subject == (store.Subject{}) {
		return nil, nil
	}
	err = numbers(ctx, s.db, subjectKey(&subject, from), subjectKey(&subject, end), func(number uint64, _ []byte) error {
		if list = append(list, number); len(list) == limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("evidence: the index of subjects: %w", err)
	}
	return list, nil
}

// EraseEvidence is [store.EvidenceLog.EraseEvidence]. From then on nobody can read the openings
// through the store. Their bytes leave the disk when Pebble next merges their tables.
//
// It is one batch: a crash before it is durable leaves all of the openings, and erasing again
// is harmless; a crash after it leaves nothing to do.
func (s *Store) EraseEvidence(ctx context.Context, from, to uint64) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	if to = min(to, s.commits.entries.Load()); from >= to {
		return nil
	}
	b := s.db.NewBatch()
	must(b.DeleteRange(entryKey(openingPrefix, from), entryKey(openingPrefix, to), nil))
	return s.writeBare(ctx, &op{batch: b})
}

// PutEvidenceTiles is [store.EvidenceLog.PutEvidenceTiles]. The tiles are in one batch: a crash
// before it is durable leaves none of them, and the next integration makes them again from the
// same leaves; a crash after it leaves all.
func (s *Store) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	if err := s.enterToWrite(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(tiles) == 0 {
		return nil
	}
	b := s.db.NewBatch() // in its own memory: when this returns, the tiles belong to the caller again
	for name, tile := range tiles {
		must(b.Set(tileKey(name), tile, nil))
	}
	return s.writeBare(ctx, &op{batch: b})
}

// EvidenceTile is [store.EvidenceLog.EvidenceTile]. The tile that it returns may not be durable
// yet. Whatever its reader then writes comes later in the log, so a crash that loses the tile
// loses that, too.
func (s *Store) EvidenceTile(ctx context.Context, name string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	tile, err := readKey(s.db, tileKey(name))
	switch {
	case err != nil:
		return nil, fmt.Errorf("tile %s: %w", name, err)
	case tile == nil:
		return nil, semel.ErrNotFound
	}
	return tile, nil
}
