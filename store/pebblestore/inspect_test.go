package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// farFuture is after every NextAt of the tests.
var farFuture = testEpoch.Add(100 * 365 * 24 * time.Hour)

// inspect reads everything that a store holds, in every way there is, and
// reports where the ways differ: the records, the due index, Due, Get and the
// store's own count. No calls may be running.
func inspect(ctx context.Context, s *Store) (found, error) {
	return inspectFrom(ctx, s, newChronicle())
}

// inspectFrom is inspect, for a log that was read in part before.
func inspectFrom(ctx context.Context, s *Store, log *chronicle) (found, error) {
	recs := found{}
	places := map[address]dueTime{}
	index := map[address]digest{}
	err := scan(s.db, indexPrefix, func(key, value []byte) error {
		at, ok := parseAddress(value)
		if _, twice := index[at]; !ok || twice || len(key) != indexKeyLen {
			return fmt.Errorf("the index has %x with address %x", key, value)
		}
		index[at] = digest(key[1:])
		if d := index[at]; s.absent.absent(&d) {
			return fmt.Errorf("%x is stored and taken for absent", d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = scan(s.db, recordPrefix, func(key, value []byte) error {
		rec, err := codec.Decode(value)
		if err != nil {
			return err
		}
		recs[rec.ID] = foundRecord{rec.Fence, rec.State}
		at, ok := parseAddress(key[1:])
		if d, indexed := index[at]; !ok || !indexed || d != rec.ID.Digest() {
			return fmt.Errorf("%s is stored and the index has another address", rec.ID.Key)
		}
		delete(index, at)
		if t := makeDueTime(rec.NextAt); t != never {
			places[at] = t
		}
		got, err := s.Get(ctx, rec.ID)
		if err != nil {
			return fmt.Errorf("%s is stored and Get gives %w", rec.ID.Key, err)
		}
		if !reflect.DeepEqual(got, rec) {
			return fmt.Errorf("%s is stored and Get gives something else", rec.ID.Key)
		}
		return genuine(rec.ID, *rec)
	})
	if err != nil {
		return nil, err
	}
	if len(index) > 0 {
		return nil, fmt.Errorf("the index has %d records that are not stored", len(index))
	}
	due := len(places)
	err = scan(s.db, duePrefix, func(key, _ []byte) error {
		t, at, ok := parseDueKey(key)
		if want, stored := places[at]; !ok || !stored || want != t {
			return fmt.Errorf("the due index has %x, whose record is not stored or due at another time", key)
		}
		delete(places, at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(places) > 0 {
		return nil, fmt.Errorf("the due index lacks %d records", len(places))
	}
	m, err := readMeta(s.db)
	if err != nil {
		return nil, err
	}
	if m.records != uint64(len(recs)) {
		return nil, fmt.Errorf("the store counts %d records and has %d", m.records, len(recs))
	}
	page, err := s.Due(ctx, store.DueQuery{Until: farFuture, Limit: len(recs) + 1})
	listed := page.Records
	if err := errors.Join(append(page.Unreadable, err)...); err != nil {
		return nil, err
	}
	if len(listed) != due {
		return nil, fmt.Errorf("Due lists %d records where %d are due", len(listed), due)
	}
	seen := map[semel.ID]bool{}
	for _, rec := range listed {
		is, stored := recs[rec.ID]
		if err := genuine(rec.ID, rec); err != nil {
			return nil, err
		}
		if !stored || is.version != rec.Fence || seen[rec.ID] {
			return nil, fmt.Errorf("Due lists %s with fence %d, which is not stored or listed twice", rec.ID.Key, rec.Fence)
		}
		seen[rec.ID] = true
	}
	if err := log.read(ctx, s, recs); err != nil {
		return nil, fmt.Errorf("the evidence log: %w", err)
	}
	return recs, nil
}

// counts is what the store has counted so far, while nothing is written.
func (s *Store) counts() meta { return s.commits.last }

// scan calls f with all keys that begin with a letter.
func scan(db *pebble.DB, letter byte, f func(key, value []byte) error) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{letter}, UpperBound: []byte{letter + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}
