package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
)

// subjectIndex finds entries of the evidence log by their subject. It is written
// behind the log: subjects are digests, so that each belongs to another place, and
// callers would wait while it is looked for. To add many that are sorted is less
// work, and nobody waits for it. What is not in the index yet is looked for in the
// log.
type subjectIndex struct {
	done    atomic.Uint64 // entries before it are in the index
	every   uint64        // how many are added together
	wake    chan struct{} // receives when there are so many
	stop    context.CancelFunc
	running sync.WaitGroup
}

// maxIndexed bounds how many entries are added to the index together. A search goes
// through about so many entries of the log.
const maxIndexed = 8192

// run starts adding to the index, from where the last process has ended.
func (x *subjectIndex) run(s *Store, memTableBytes uint64) error {
	done, err := readIndexed(s.db)
	if err != nil {
		return err
	}
	x.done.Store(done)
	x.every = min(maxIndexed, memTableBytes>>10)
	x.wake = make(chan struct{}, 1)
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-x.wake:
			}
			for ctx.Err() == nil && s.evidence.durable.Load()-x.done.Load() >= x.every {
				if err := x.add(s); err != nil {
					// The log has everything: finding reads more of it from now
					// on. The next Open tries again.
					s.log.trouble("the index of the evidence log can't be written", "error", err)
					return
				}
			}
		}
	})
	return nil
}

// grown wakes the goroutine that adds to the index, if there is enough to add.
func (x *subjectIndex) grown(durable uint64) {
	if durable-x.done.Load() < x.every {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default: // it will be seen
	}
}

// close stops in between. What is not in the index stays in the log.
func (x *subjectIndex) close() {
	x.stop()
	x.running.Wait()
}

// add adds the next entries to the index.
//
// The places and the mark that says how far they go are in one batch. It is about
// durable entries only. A crash before it is durable leaves the index as it was,
// and the next process adds the same again; a crash after it leaves nothing to do.
// So nothing waits for its sync.
func (x *subjectIndex) add(s *Store) error {
	from := x.done.Load()
	end := from + x.every
	keys := make([][subjectKeyLen]byte, 0, x.every)
	err := s.subjects(context.Background(), from, end, func(subject *semel.Subject, number uint64) bool {
		var key [subjectKeyLen]byte
		putSubjectKey(key[:], subject, number)
		keys = append(keys, key)
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(keys, func(a, b [subjectKeyLen]byte) int {
		// Subjects are digests: their first eight bytes nearly always decide.
		x, y := binary.BigEndian.Uint64(a[1:]), binary.BigEndian.Uint64(b[1:])
		if x != y {
			return cmp.Compare(x, y)
		}
		return bytes.Compare(a[:], b[:])
	})
	b := s.db.NewBatchWithSize(len(keys)*(subjectKeyLen+4) + 128)
	defer b.Close()
	for i := range keys {
		add := b.SetDeferred(subjectKeyLen, 0)
		copy(add.Key, keys[i][:])
		finish(add)
	}
	must(b.Set(indexedKey, binary.BigEndian.AppendUint64(nil, end), nil))
	s.log.apply(s.db, b)
	x.done.Store(end)
	return nil
}

// readIndexed reads how far the index goes. A new directory has none.
func readIndexed(db pebble.Reader) (uint64, error) {
	b, closer, err := db.Get(indexedKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(b) != 8 {
		return 0, fmt.Errorf("the key %s has %d bytes, not 8", indexedKey, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// subjects calls f with the subjects of the entries from a number to before another,
// which are all there, until it returns false. Entries without a subject are left
// out. What f is given is gone when it returns.
func (s *Store) subjects(ctx context.Context, from, end uint64, f func(subject *semel.Subject, number uint64) bool) (err error) {
	it, err := chunks(s.db, leafPrefix, end)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	next := from
	var c chunk
	for ok := it.SeekLT(chunkKey(leafPrefix, from+1)); ok && next < end; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.read(it, false); err != nil {
			return err
		}
		if !c.has(next) {
			break
		}
		for i := next - c.first; i < uint64(len(c.leaves)) && next < end; i, next = i+1, next+1 {
			if c.subjects[i] != (semel.Subject{}) && !f(&c.subjects[i], next) {
				return nil
			}
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if next < end {
		return fmt.Errorf("entry %d of the evidence log is missing", next)
	}
	return nil
}

// FindEvidence is [semel.EvidenceStore.FindEvidence]. It reads the index, and for
// what that does not have yet, a few thousand entries of the log.
func (s *Store) FindEvidence(ctx context.Context, subject semel.Subject, from uint64, limit int) (numbers []uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	end := s.evidence.durable.Load()
	if from >= end || limit <= 0 || subject == (semel.Subject{}) {
		return nil, nil
	}
	indexed := min(s.subjectIndex.done.Load(), end)
	if from < indexed {
		if numbers, err = s.findIndexed(ctx, subject, from, indexed, limit); err != nil {
			return nil, err
		}
	}
	if len(numbers) == limit || indexed == end {
		return numbers, nil
	}
	err = s.subjects(ctx, max(from, indexed), end, func(other *semel.Subject, number uint64) bool {
		if *other == subject {
			numbers = append(numbers, number)
		}
		return len(numbers) < limit
	})
	if err != nil {
		return nil, fmt.Errorf("find evidence: %w", err)
	}
	return numbers, nil
}

// findIndexed reads the index.
func (s *Store) findIndexed(ctx context.Context, subject semel.Subject, from, end uint64, limit int) (numbers []uint64, err error) {
	var lower, upper [subjectKeyLen]byte
	putSubjectKey(lower[:], &subject, from)
	putSubjectKey(upper[:], &subject, end)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower[:], UpperBound: upper[:]})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok && len(numbers) < limit; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		number, ok := parseNumber(it.Key(), subjectKeyLen)
		if !ok {
			return nil, fmt.Errorf("the index of the evidence log has a key of %d bytes", len(it.Key()))
		}
		numbers = append(numbers, number)
	}
	return numbers, it.Error()
}
