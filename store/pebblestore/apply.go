package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// stripeCount is so high that two running calls rarely meet in a stripe.
const stripeCount = 4096

// stripe orders the changes of the records whose digests fall on it. Its lock is
// held for work in memory only.
type stripe struct {
	mu sync.Mutex
	// pending lists the newest change of each record that is not durable yet.
	pending *op
	// version counts the changes that joined a group. A read from the database
	// holds for as long as it stays the same.
	version uint64
	// withdrawn counts those that left their group again. What was read of a change
	// that is not durable holds for as long as it stays the same.
	withdrawn uint64
	watchers  map[digest]map[chan struct{}]struct{}
	// heads remembers the durable records that are likely to change next: those
	// that are being processed. It saves their holders the read.
	heads [headCount]head
	tags  [headCount]uint64 // of the digests in heads, to find them faster
	hand  uint8             // the place in heads to be taken next
}

// headCount bounds what a stripe remembers. All stripes together remember up to
// 32,768 records in 2 MiB.
const headCount = 8

// head is what a change of a record has to know about it.
type head struct {
	digest   digest // zero: free
	at       address
	revision semel.Revision
	due      dueTime
}

func tag(d *digest) uint64 { return binary.LittleEndian.Uint64(d[24:]) }

// remember takes note of a durable record.
func (st *stripe) remember(o *op) {
	i := st.hand % headCount
	st.heads[i], st.tags[i] = head{o.digest, o.at, o.revision, o.due}, tag(&o.digest)
	st.hand++
}

// recall finds what is remembered of a record.
func (st *stripe) recall(d *digest) *head {
	want := tag(d)
	for i, have := range st.tags {
		if have == want && st.heads[i].digest == *d {
			return &st.heads[i]
		}
	}
	return nil
}

func (s *Store) stripe(d *digest) *stripe {
	return &s.stripes[binary.LittleEndian.Uint16(d[:])%stripeCount]
}

// find returns the change of a record that is not durable yet, if there is one.
func (st *stripe) find(d *digest) *op {
	for o := st.pending; o != nil; o = o.next {
		if o.digest == *d {
			return o
		}
	}
	return nil
}

// replace puts o in the list, in the place of old if that is not nil.
func (st *stripe) replace(old, o *op) {
	st.version++
	if old != nil {
		st.remove(old)
	} else if h := st.recall(&o.digest); h != nil {
		*h = head{}
	}
	o.prev, o.next, st.pending = old, st.pending, o
}

// withdraw is the reverse of replace, for the newest change of a record.
func (st *stripe) withdraw(o *op) {
	st.version++
	st.withdrawn++
	st.remove(o)
	if prev := o.prev; prev != nil {
		o.prev = nil
		prev.next, st.pending = st.pending, prev
	}
}

// forget ends the mention of o, which is durable, by the change after it.
func (st *stripe) forget(o *op) {
	for newer := st.find(&o.digest); newer != nil; newer = newer.prev {
		if newer.prev == o {
			newer.prev = nil
		}
	}
}

// remove takes o off the list. It reports false if a newer change has replaced it.
func (st *stripe) remove(o *op) bool {
	for at := &st.pending; *at != nil; at = &(*at).next {
		if *at == o {
			*at, o.next = o.next, nil
			return true
		}
	}
	return false
}

// settle takes the changes of a group that has become durable off their stripes,
// and tells of them.
func (s *Store) settle(g *group) {
	for _, o := range g.ops {
		if o.bare {
			continue
		}
		st := s.stripe(&o.digest)
		st.mu.Lock()
		switch last := st.remove(o); {
		case !last:
			st.forget(o)
		case o.open:
			st.remember(o)
		}
		st.notify(&o.digest)
		st.mu.Unlock()
	}
}

// Apply is [semel.Store.Apply]. When ctx ends while the write is being synced,
// Apply returns at once and the write goes on. A write that was not sent to the disk by
// then is taken back, and the error is a [semel.ErrNotApplied].
func (s *Store) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return semel.Record{}, false, err
	}
	defer s.leave()
	if w.Record.Revision.IsZero() {
		return semel.Record{}, false, errors.New("pebblestore: a write needs a revision")
	}
	o := s.newOp()
	o.digest = w.Record.ID.Digest()
	o.revision = w.Record.Revision
	o.due = makeDueTime(w.Record.NextAt)
	o.open = w.Record.State == semel.Processing
	var err error
	if o.value, err = recordcodec.Append(o.value[:0], &w.Record); err != nil {
		return semel.Record{}, false, err
	}
	o.evidence, o.deadline = w.Evidence, w.Deadline
	for {
		cur, err := s.change(&w.Record.ID, w.Expect, o)
		if err != nil {
			s.ops.Put(o)
			return semel.Record{}, false, err
		}
		if !cur.refused {
			break
		}
		if holds, err := cur.wait(ctx); err != nil || holds {
			s.ops.Put(o)
			return cur.rec, false, err
		}
	}
	if err := s.await(ctx, o); err != nil {
		return semel.Record{}, false, err // o may still be in use
	}
	s.ops.Put(o)
	return w.Record, true, nil
}

func (s *Store) newOp() *op {
	if o, ok := s.ops.Get().(*op); ok {
		*o = op{value: o.value[:0]}
		return o
	}
	return &op{value: make([]byte, 0, 2048)}
}

// current is what is stored, where it stands in the way of a change or was asked for.
type current struct {
	refused bool
	rec     semel.Record // zero: none is stored
	// group must be durable before anybody hears of rec, and no change of the stripe
	// may have been withdrawn since. Nil: it is durable.
	group     *group
	stripe    *stripe
	withdrawn uint64
}

// wait waits until what is stored is durable. It reports false where that may have been
// withdrawn instead.
func (c *current) wait(ctx context.Context) (holds bool, err error) {
	if c.group == nil {
		return true, nil
	}
	if err := wait(ctx, c.group); err != nil {
		c.rec = semel.Record{}
		return false, err
	}
	c.stripe.mu.Lock()
	defer c.stripe.mu.Unlock()
	return c.stripe.withdrawn == c.withdrawn, nil
}

// change lets o join a group if the stored revision is expect and it is not too late.
// Where another revision is stored it says what is.
func (s *Store) change(id *semel.ID, expect semel.Revision, o *op) (current, error) {
	st := s.stripe(&o.digest)
	var read stored
	for known := false; ; known = true {
		st.mu.Lock()
		p := st.find(&o.digest)
		switch {
		case p != nil:
			if p.revision != expect {
				cur, err := st.refusedBy(p)
				st.mu.Unlock()
				return cur, err
			}
			o.at, o.was, o.creates = p.at, p.due, p.deletes()
		case expect.IsZero() && s.absent.absent(&o.digest):
			o.was, o.creates = never, true
		case known && read.version == st.version:
			if read.err != nil || read.other {
				st.mu.Unlock()
				return current{refused: true, rec: read.rec}, read.err
			}
			o.at, o.was, o.creates = read.at, read.due, read.at == nowhere
		default:
			if h := st.recall(&o.digest); h != nil && h.revision == expect {
				o.at, o.was, o.creates = h.at, h.due, false
				break
			}
			version := st.version
			st.mu.Unlock()
			read = s.read(&o.digest, id, expect)
			read.version = version
			if s.looked != nil {
				s.looked()
			}
			continue
		}
		if o.deadline != 0 && s.clock.now() >= o.deadline {
			st.mu.Unlock()
			return current{}, semel.ErrTooLate
		}
		err := ErrFull
		if !o.creates || !s.space.full() {
			err = s.commits.join(o, p)
		}
		if err != nil {
			st.mu.Unlock()
			return current{}, err
		}
		if o.creates {
			s.absent.stored(s, &o.digest)
		}
		st.replace(p, o)
		st.mu.Unlock()
		return current{}, nil
	}
}

// refusedBy is what the change p leaves to those who expected something else.
// The caller holds the lock of the stripe.
func (st *stripe) refusedBy(p *op) (current, error) {
	cur := current{refused: true, group: p.group, stripe: st, withdrawn: st.withdrawn}
	if p.deletes() {
		return cur, nil
	}
	var err error
	cur.rec, err = recordcodec.Decode(p.value)
	return cur, err
}

// stored is what the database holds for a record. It may not be durable yet, and
// parts of it may be of different times, unless the stripe's version has not
// changed meanwhile and no change is pending.
type stored struct {
	version uint64 // of the stripe, before the read
	at      address
	due     dueTime
	other   bool // its revision is not the expected one, and this is it:
	rec     semel.Record
	err     error
}

// read looks a record up in the database. It decodes the record if its revision
// is not the expected one.
func (s *Store) read(d *digest, id *semel.ID, expect semel.Revision) (r stored) {
	none := stored{due: never, at: nowhere, other: !expect.IsZero()}
	if s.absent.absent(d) {
		return none
	}
	var key [indexKeyLen]byte
	putIndexKey(key[:], d)
	value, closer, err := s.db.Get(key[:])
	if errors.Is(err, pebble.ErrNotFound) {
		return none
	}
	if err != nil {
		return stored{err: damaged(d, err)}
	}
	at, ok := parseAddress(value)
	closer.Close()
	if !ok {
		return stored{err: damaged(d, errors.New("its index entry has no address"))}
	}
	putRecordKey(key[:recordKeyLen], at)
	if value, closer, err = s.db.Get(key[:recordKeyLen]); err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = errors.New("it is in the index and not stored")
		}
		return stored{err: damaged(d, err)}
	}
	defer closer.Close()
	head, err := recordcodec.ReadHead(value, id)
	if err != nil {
		return stored{err: damaged(d, err)}
	}
	r = stored{at: at, due: makeDueTime(head.NextAt)}
	if head.Revision != expect {
		r.other = true
		if r.rec, err = recordcodec.Decode(value); err != nil {
			return stored{err: damaged(d, err)}
		}
	}
	return r
}

// damaged names a record without giving its key away.
func damaged(d *digest, err error) error {
	return fmt.Errorf("record %x: %w", *d, err)
}

// Get is [semel.Store.Get].
func (s *Store) Get(ctx context.Context, id semel.ID) (semel.Record, error) {
	if err := s.enter(ctx); err != nil {
		return semel.Record{}, err
	}
	defer s.leave()
	return s.get(ctx, id)
}

// get is Get within a call.
func (s *Store) get(ctx context.Context, id semel.ID) (semel.Record, error) {
	for {
		cur, err := s.look(&id)
		if err != nil {
			return semel.Record{}, err
		}
		switch holds, err := cur.wait(ctx); {
		case err != nil:
			return semel.Record{}, err
		case holds && cur.rec.Revision.IsZero():
			return semel.Record{}, semel.ErrNotFound
		case holds:
			return cur.rec, nil
		}
	}
}

// pending reports whether a record is being changed.
func (s *Store) pending(id *semel.ID) bool {
	d := id.Digest()
	st := s.stripe(&d)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.find(&d) != nil
}

// look finds out what is stored.
func (s *Store) look(id *semel.ID) (current, error) {
	d := id.Digest()
	st := s.stripe(&d)
	var read stored
	for known := false; ; known = true {
		st.mu.Lock()
		if p := st.find(&d); p != nil {
			defer st.mu.Unlock()
			return st.refusedBy(p)
		}
		version := st.version
		st.mu.Unlock()
		if known && read.version == version {
			return current{rec: read.rec}, read.err
		}
		read = s.read(&d, id, semel.Revision{})
		read.version = version
	}
}
