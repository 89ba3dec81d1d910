package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
)

// subjectIndex finds entries of the evidence log by their subject.
//
// Subjects are digests: a key for each would belong to another place of the database,
// and cost more than the entry itself. So the index is made of runs. A run lists
// what runEntries entries are about, sorted, and is written once, behind the log,
// when there are so many. A search reads one block of each run: a thousand of them
// for 65 million entries. The subjects of entries that are in no run yet stay in
// memory.
type subjectIndex struct {
	mu sync.Mutex
	// done is how many entries are in runs, and recent the subjects of those from
	// there on, in their order. The last ones may not be durable. Its elements do
	// not change.
	done   uint64
	recent []semel.Subject
	// broken: recent does not go on, so what is not in runs is read from the log.
	broken bool

	next    atomic.Uint64 // how many entries there are at the end of the next run
	wake    chan struct{} // receives when they are durable
	stop    chan struct{}
	running sync.WaitGroup
}

const (
	runBits = 16
	// runEntries is how many entries are in a run.
	runEntries = 1 << runBits
	// runBlock is how many of them are under one key.
	runBlock = 512
)

// A place says, in its higher bits, how the subject of an entry begins, and in its
// runBits lower ones where in the run the entry is.
type place uint64

func makePlace(subject *semel.Subject, at int) place {
	return place(binary.BigEndian.Uint64(subject[:])&^(runEntries-1) | uint64(at))
}

func (p place) at() uint64 { return uint64(p) % runEntries }

// start reads what the last process had not put into runs, and begins to add to
// the index. What can't be read stops the index, not the store.
func (x *subjectIndex) start(s *Store, entries uint64) error {
	x.wake, x.stop = make(chan struct{}, 1), make(chan struct{})
	var err error
	if x.done, err = readRuns(s.db); err != nil {
		return err
	}
	x.next.Store(x.done + runEntries)
	err = s.subjects(context.Background(), x.done, entries, func(subject *semel.Subject, _ uint64) bool {
		x.recent = append(x.recent, *subject)
		if len(x.recent) == runEntries {
			x.write(s)
		}
		return true
	})
	if err != nil {
		x.give(s, err)
	}
	x.running.Go(func() {
		for {
			select {
			case <-x.stop:
				return
			case <-x.wake:
				for x.write(s) {
				}
			}
		}
	})
	return nil
}

// give up: what is not in runs is read from the log from now on. The next Open tries
// again.
func (x *subjectIndex) give(s *Store, err error) {
	x.broken, x.recent = true, nil
	x.next.Store(math.MaxUint64)
	s.log.trouble("the evidence log can't be read to index it", "error", err)
}

// close stops between two runs. What is in none stays in the log.
func (x *subjectIndex) close() {
	close(x.stop)
	x.running.Wait()
}

// add takes note of entries that are written, in their order.
func (x *subjectIndex) add(lists [][]semel.Entry) {
	if len(lists) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken {
		return
	}
	for _, list := range lists {
		for i := range list {
			x.recent = append(x.recent, list[i].Subject)
		}
	}
}

// grown says how many entries have become durable.
func (x *subjectIndex) grown(durable uint64) {
	if durable < x.next.Load() {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default: // it will be seen
	}
}

// write writes a run, if there are entries for one.
//
// A run is one batch, about durable entries only. A crash before it is durable
// leaves the index as it was, and the next process writes the same again; a crash
// after it leaves nothing to do. So nothing waits for its sync.
func (x *subjectIndex) write(s *Store) bool {
	x.mu.Lock()
	subjects, first := x.recent, x.done
	x.mu.Unlock()
	if s.readOnly || len(subjects) < runEntries || s.evidence.durable.Load() < first+runEntries {
		return false
	}
	places := make([]place, 0, runEntries)
	for i := range subjects[:runEntries] {
		if subjects[i] != (semel.Subject{}) {
			places = append(places, makePlace(&subjects[i], i))
		}
	}
	slices.Sort(places)
	b := s.db.NewBatchWithSize(len(places)*8 + (len(places)/runBlock+1)*(runKeyLen+16) + 128)
	defer b.Close()
	progress{durable: s.commits.durable.Load()}.log(b)
	if len(places) == 0 {
		places = append(places, 0) // the last run says where the next one begins
	}
	for block := range slices.Chunk(places, runBlock) {
		add := b.SetDeferred(runKeyLen, 8*len(block))
		putRunKey(add.Key, first, block[0])
		for i, p := range block {
			binary.BigEndian.PutUint64(add.Value[8*i:], uint64(p))
		}
		finish(add)
	}
	s.log.apply(s.db, b)
	x.mu.Lock()
	x.done += runEntries
	x.next.Store(x.done + runEntries)
	// In other memory, so that what was written goes.
	x.recent = append(make([]semel.Subject, 0, runEntries+runEntries/8), x.recent[runEntries:]...)
	x.mu.Unlock()
	return true
}

// readRuns reads how many entries are in runs.
func readRuns(db pebble.Reader) (done uint64, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{runPrefix}, UpperBound: []byte{runPrefix + 1}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return 0, it.Error()
	}
	first, ok := parseRunKey(it.Key())
	if !ok {
		return 0, errRun
	}
	return first + runEntries, nil
}

var errRun = errors.New("the index of the evidence log is damaged")

// FindEvidence is [semel.EvidenceStore.FindEvidence].
func (s *Store) FindEvidence(ctx context.Context, subject semel.Subject, from uint64, limit int) (numbers []uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if limit <= 0 || subject == (semel.Subject{}) {
		return nil, nil
	}
	x := &s.subjectIndex
	x.mu.Lock()
	done, recent, broken := x.done, x.recent, x.broken
	x.mu.Unlock()
	found := func(_ *semel.Subject, number uint64) bool {
		numbers = append(numbers, number)
		return len(numbers) < limit
	}
	if err = s.findInRuns(ctx, &subject, from, done, found); err != nil {
		return nil, fmt.Errorf("find evidence: %w", err)
	}
	from = max(from, done)
	end := s.evidence.durable.Load()
	if broken {
		err = s.subjects(ctx, from, max(from, end), func(other *semel.Subject, number uint64) bool {
			return len(numbers) < limit && (*other != subject || found(other, number))
		})
		if err != nil {
			return nil, fmt.Errorf("find evidence: %w", err)
		}
		return numbers, nil
	}
	for ; from < min(end, done+uint64(len(recent))) && len(numbers) < limit; from++ {
		if recent[from-done] == subject {
			numbers = append(numbers, from)
		}
	}
	return numbers, nil
}

// findInRuns calls f with the entries of a subject from a number to before another,
// until it returns false.
func (s *Store) findInRuns(ctx context.Context, subject *semel.Subject, from, end uint64, f func(*semel.Subject, uint64) bool) (err error) {
	runs, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{runPrefix}, UpperBound: []byte{runPrefix + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runs.Close()) }()
	leaves, err := chunks(s.db, leafPrefix, end)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leaves.Close()) }()
	var c chunk
	for first := from &^ (runEntries - 1); first < end; first += runEntries {
		if err := ctx.Err(); err != nil {
			return err
		}
		places, err := placesIn(runs, first, makePlace(subject, 0), makePlace(subject, runEntries-1))
		if err != nil {
			return err
		}
		for _, p := range places {
			number := first + p.at()
			if number < from {
				continue
			}
			// Only the beginning of the subject is in the run.
			if !c.has(number) {
				if !leaves.SeekLT(chunkKey(leafPrefix, number+1)) {
					return errors.Join(errRun, leaves.Error())
				}
				if err := c.read(leaves, false); err != nil {
					return err
				}
			}
			if !c.has(number) {
				return fmt.Errorf("entry %d of the evidence log is missing", number)
			}
			if c.subjects[number-c.first] == *subject && !f(subject, number) {
				return nil
			}
		}
	}
	return nil
}

// placesIn reads the places of a run from one to another.
func placesIn(it *pebble.Iterator, first uint64, from, to place) (found []place, err error) {
	var after [runKeyLen]byte
	putRunKey(after[:], first, from)
	// They begin in the block before that key, unless that is of another run, or in
	// the one that has it.
	ok := it.SeekLT(after[:])
	if ok {
		if run, valid := parseRunKey(it.Key()); !valid || run != first {
			ok = it.Next()
		}
	} else {
		ok = it.SeekGE(after[:])
	}
	for ; ok; ok = it.Next() {
		if run, valid := parseRunKey(it.Key()); !valid || run != first {
			return found, nil
		}
		value, err := it.ValueAndErr()
		if err != nil || len(value)%8 != 0 {
			return nil, errors.Join(errRun, err)
		}
		for ; len(value) > 0; value = value[8:] {
			switch p := place(binary.BigEndian.Uint64(value)); {
			case p > to:
				return found, nil
			case p >= from:
				found = append(found, p)
			}
		}
	}
	return found, it.Error()
}

// subjects calls f with the subjects of the entries from a number to before another,
// which are all there, until it returns false. What f is given is gone when it
// returns.
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
			if !f(&c.subjects[i], next) {
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
