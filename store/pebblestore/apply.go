package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/hub"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// stripeCount is high enough that a reader rarely has to start over because another record of
// the stripe has changed; see BenchmarkStripes.
const stripeCount = 4096

// stripe allows each of its records one change at a time on the way to the disk. Digests are
// spread over the stripes. The lock is held for work in memory only.
type stripe struct {
	mu sync.Mutex
	// pending are the records that are being changed. Until a change is durable or withdrawn,
	// nobody can see it and nobody can make another.
	pending []digest
	// running is the newest record with a running attempt, as stored: the end of that attempt
	// usually comes next, and needn't look up what the claim has just written. The zero value
	// means none.
	running runningRecord
	// version counts the changes begun so far. A database read is still valid if it hasn't
	// changed meanwhile.
	version  uint64
	watchers hub.Hub[digest]
}

// runningRecord is what a change needs to know about the version that it follows.
type runningRecord struct {
	digest   digest
	revision store.Revision
	at       address
	due      dueTime
}

func (s *Store) stripe(d *digest) *stripe {
	return &s.stripes[int(binary.LittleEndian.Uint16(d[:]))%len(s.stripes)]
}

// lock locks the stripe as soon as a record isn't being changed. If ctx ends first, it fails
// and locks nothing.
func (st *stripe) lock(ctx context.Context, d *digest) error {
	for {
		st.mu.Lock()
		if !slices.Contains(st.pending, *d) {
			return nil
		}
		changed, stop := st.watchers.Watch(*d)
		st.mu.Unlock()
		select {
		case <-changed:
			stop()
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}

// begin marks a record as being changed. The caller holds the lock.
func (st *stripe) begin(d *digest) {
	st.version++
	if st.running.digest == *d {
		st.running = runningRecord{}
	}
	st.pending = append(st.pending, *d)
}

// end removes the mark and wakes the waiters. made says that the change is durable.
func (st *stripe) end(o *op, made bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := slices.Index(st.pending, o.digest)
	st.pending = slices.Delete(st.pending, i, i+1)
	if made && o.rec != nil && !o.rec.State.Terminal() {
		st.running = runningRecord{o.digest, o.rec.Revision, o.at, o.due}
	}
	st.watchers.Wake(o.digest)
}

// isPending reports whether a record is being changed.
func (s *Store) isPending(id *semel.ID) bool {
	d := id.Digest()
	st := s.stripe(&d)
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Contains(st.pending, d)
}

// Apply is [store.Store.Apply]. If ctx ends while the write is being synced, Apply returns at
// once and the write continues. A write that hasn't been sent to the disk by then is withdrawn,
// and the error is a [store.ErrNotApplied].
func (s *Store) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return nil, false, err
	}
	defer s.leave()
	if w.Record.Revision.IsZero() {
		return nil, false, errors.New("pebblestore: a write needs a revision")
	}
	o := &op{digest: w.Record.ID.Digest(), rec: w.Record, due: makeDueTime(w.Record.NextAt), attributes: w.Was, evidence: w.Evidence, deadline: w.Deadline}
	cur, applied, err := s.change(ctx, &w.Record.ID, w.Expect, o)
	if applied {
		cur = w.Record
	}
	return cur, applied, err
}

// change writes o if the stored revision is expect. Otherwise it returns the stored record.
func (s *Store) change(ctx context.Context, id *semel.ID, expect store.Revision, o *op) (cur *semel.Record, applied bool, err error) {
	st := s.stripe(&o.digest)
	is, err := s.look(ctx, st, &o.digest, id, expect)
	if err != nil {
		return nil, false, err
	}
	o.at, o.was, o.creates = is.at, is.due, is.at == noAddress
	switch {
	case is.other:
		st.mu.Unlock()
		return is.rec, false, nil
	case o.deadline != 0 && s.clock.now() >= o.deadline:
		err = store.ErrTooLate
	case o.creates && s.space.full():
		err = ErrFull
	case o.creates:
		s.absent.add(&o.digest) // before it can be stored
	}
	if err != nil {
		st.mu.Unlock()
		return nil, false, err
	}
	st.begin(&o.digest)
	st.mu.Unlock()
	err = s.commit(ctx, o)
	return nil, err == nil, err
}

// stored is a record as the database holds it.
type stored struct {
	at    address // noAddress: nothing is stored
	due   dueTime
	other bool          // its revision isn't the expected one; then rec is the record, if there is one:
	rec   *semel.Record // nil: nothing is stored
}

// look reads the durable version of a record. It returns with the stripe locked, so nothing
// changes until the caller unlocks it; after an error the stripe isn't locked.
func (s *Store) look(ctx context.Context, st *stripe, d *digest, id *semel.ID, expect store.Revision) (stored, error) {
	if err := st.lock(ctx, d); err != nil {
		return stored{}, err
	}
	for {
		if expect.IsZero() && s.absent.absent(d) {
			return stored{at: noAddress, due: never}, nil
		}
		if is := &st.running; is.digest == *d && is.revision == expect {
			return stored{at: is.at, due: is.due}, nil
		}
		version := st.version
		st.mu.Unlock()
		is, err := s.read(d, id, expect)
		if s.looked != nil {
			s.looked()
		}
		if err := st.lock(ctx, d); err != nil {
			return stored{}, err
		}
		if st.version != version {
			continue // parts of it may be older than others, or not durable yet
		}
		if err != nil {
			st.mu.Unlock()
			return stored{}, damaged(d, err)
		}
		return is, nil
	}
}

// read looks a record up in the database. It decodes the record if its revision
// is not the expected one.
func (s *Store) read(d *digest, id *semel.ID, expect store.Revision) (stored, error) {
	value, closer, err := s.db.Get(indexKey(d))
	if errors.Is(err, pebble.ErrNotFound) {
		return stored{due: never, at: noAddress, other: !expect.IsZero()}, nil
	}
	if err != nil {
		return stored{}, err
	}
	at, ok := parseAddress(value)
	closer.Close()
	if !ok {
		return stored{}, errors.New("its index entry has no address")
	}
	if value, closer, err = s.db.Get(recordKey(at)); err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = errors.New("it is in the index and not stored")
		}
		return stored{}, err
	}
	defer closer.Close()
	head, err := codec.ReadHead(value, id)
	is := stored{at: at, due: makeDueTime(head.NextAt), other: head.Revision != expect}
	if err == nil && is.other {
		is.rec, err = codec.Decode(value)
	}
	return is, err
}

// damaged names a record without revealing its key.
func damaged(d *digest, err error) error {
	return fmt.Errorf("record %x: %w", *d, err)
}

// Get is [store.Store.Get].
func (s *Store) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.get(ctx, &id)
}

// get is Get within a call to the store.
func (s *Store) get(ctx context.Context, id *semel.ID) (*semel.Record, error) {
	d := id.Digest()
	st := s.stripe(&d)
	is, err := s.look(ctx, st, &d, id, store.Revision{})
	if err != nil {
		return nil, err
	}
	st.mu.Unlock()
	if is.at == noAddress {
		return nil, semel.ErrNotFound
	}
	return is.rec, nil
}

// decode reads a record that a scan has reached, or says which one can't be read.
func decode(at address, value []byte, err error) (rec *semel.Record, _ error) {
	if err == nil {
		rec, err = codec.Decode(value)
	}
	if err != nil {
		return nil, fmt.Errorf("record number %d: %w", at, err)
	}
	return rec, nil
}

// settled returns a record as a scan found it, or, if it is being changed, as it is afterwards.
// Whatever a scan finds was either pending when the scan began or is durable, and once it isn't
// pending it is durable, too.
func (s *Store) settled(ctx context.Context, found *semel.Record) (*semel.Record, error) {
	if s.isPending(&found.ID) {
		return s.get(ctx, &found.ID)
	}
	return found, nil
}
