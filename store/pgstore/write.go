package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Apply is [store.Store.Apply].
func (s *Store) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return nil, false, notApplied(err)
	}
	o, err := s.newOp(w)
	if err != nil {
		return nil, false, err
	}
	if err := s.writers.Do(ctx, o); err != nil {
		return nil, false, unanswered(err)
	}
	if o.err != nil {
		return nil, false, o.err
	}
	return o.current, o.applied, nil
}

// writeBatch makes the writes of a batch and gives each its result, by the deadline of ctx.
func (s *Store) writeBatch(ctx context.Context, ops []*op) {
	slices.SortFunc(ops, byIdentity)
	timeout := s.opts.LockTimeout
	if len(ops) == 1 && s.locked.has(ops[0].id) {
		timeout = noLockTimeout
	}
	s.writeParts(ctx, ops, timeout)
	s.locked.note(ops)
	for _, o := range ops {
		if o.applied {
			s.changed(&o.id)
		}
	}
	s.meets.Store(slices.ContainsFunc(ops, func(o *op) bool { return o.creates() && o.current != nil && !o.applied }))
}

const (
	// noLockTimeout is the shortest lock timeout that a server has.
	noLockTimeout = time.Millisecond
	// rounds is how often a write looks again if its record keeps coming and going.
	rounds = 10
	// maxLocked bounds the memory for lockedIDs. Forgetting one costs a batch that is sent in parts.
	maxLocked = 1000
)

// writeParts makes writes, together if possible. If the server refuses them because of a row,
// which rolls back all of them, it sends halves, and halves of those, so that one poisoned
// write costs the others only time. Writes that met a lock have already waited for it.
func (s *Store) writeParts(ctx context.Context, ops []*op, lockTimeout time.Duration) {
	err := s.commit(ctx, s.writes, func(conn *pgx.Conn) error { return s.writeRounds(conn, ops, lockTimeout) })
	// Whatever a round has committed is settled, and keeps its result.
	ops = unsettled(ops)
	switch {
	case err == nil && len(ops) > 0:
		panic("pgstore: a write has no result")
	case len(ops) > 1 && rolledBackByRow(err):
		if metLock(err) {
			lockTimeout = noLockTimeout
		}
		half := len(ops) / 2
		s.writeParts(ctx, ops[:half], lockTimeout)
		s.writeParts(ctx, ops[half:], lockTimeout)
	default:
		for _, o := range ops {
			if o.committed { // an error of a later round isn't about the first
				o.settle(nil, false, fmt.Errorf("pgstore: apply: the result is unknown: %v", err))
				continue
			}
			o.settle(nil, false, fmt.Errorf("pgstore: apply: %w", err))
		}
	}
}

// writeRounds makes writes, each of another identity, and settles all of them, or returns an
// error. Writes that a round has settled are committed, and the error of a later round isn't
// about them; no round has made the others yet.
func (s *Store) writeRounds(conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	for n := 0; ; n++ {
		if ops = unsettled(ops); len(ops) == 0 {
			return nil
		}
		if n == rounds {
			return notApplied(errors.New("the record comes and goes too often"))
		}
		if err := s.writeOnce(conn, ops, lockTimeout); err != nil {
			return err
		}
	}
}

// send sends writes once, in one transaction, and notes what the server says about each.
func (s *Store) send(conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	for _, o := range ops {
		o.named, o.there = false, nil
	}
	_, err := transact(unending, s, conn, func(v values) (none struct{}, err error) { return none, readAnswer(ops, v) },
		s.writing(conn.PgConn().CustomData(), ops, lockTimeout)...)
	return err
}

// readAnswer notes what a row of the server's answer says about one of ops: that it was made, or
// which row stands in its way.
func readAnswer(ops []*op, v values) error {
	if v[0] == nil {
		return nil // a barrier
	}
	n, ok := slices.BinarySearchFunc(ops, v[0], func(o *op, id []byte) int { return bytes.Compare(o.id[:], id) })
	switch {
	case !ok, len(v) > 2 && v[3] != nil && !ops[n].creates():
		return errGarbled
	case len(v) > 2 && v[3] != nil: // maybe it was deleted, and the write was made after all
		ops[n].there = new(newRow(v))
	case ops[n].named || !bytes.Equal(v[1], ops[n].write.Record.Revision[:]):
		return errGarbled
	default:
		ops[n].named = true
	}
	return nil
}

// writeOnce sends writes once. It settles the applied ones, and those that a stored record
// refuses. The server names each applied write by identity and revision. A write counts as
// applied only if the server has named it and reported the commit, never by its silence.
//
// A crash before the commit leaves none of the writes. A crash after it leaves all applied
// ones, perhaps unanswered: the engine sends them again and finds them.
func (s *Store) writeOnce(conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	if err := s.send(conn, ops, lockTimeout); err != nil {
		return err
	}
	for _, o := range ops {
		if o.committed = !o.named; o.named {
			o.settle(o.write.Record, true, nil)
		} else if o.there != nil {
			o.refuse(o.there)
		}
	}
	rest := unsettled(ops)
	if len(rest) == 0 {
		return nil
	}
	late, err := s.lookAtWhatIsThere(conn, rest)
	if err != nil || len(late) == 0 {
		return err
	}
	return s.refuseLate(conn, late, lockTimeout)
}

// lookAtWhatIsThere reads the rows of writes that weren't applied. It settles a write that its
// row refuses, and returns writes that only their deadline refuses. Another round may apply the
// rest.
func (s *Store) lookAtWhatIsThere(conn *pgx.Conn, ops []*op) (late []*op, err error) {
	ids := make([][]byte, len(ops))
	for i, o := range ops {
		ids[i] = o.id[:]
	}
	found, err := s.look(conn, ids)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		r := found[o.id]
		switch {
		case r.revision == nil && !o.creates():
			o.settle(nil, false, nil)
		case r.revision != nil && o.refuse(&r):
		case o.deadline != 0 && r.at >= int64(o.deadline)/1000: // in microseconds
			late = append(late, o)
		}
	}
	return late, nil
}

// refuse settles a write that the row of its identity stands in the way of, and reports whether
// it does.
func (o *op) refuse(r *row) bool {
	rec, err := r.decode()
	if err != nil && !bytes.Equal(r.revision, o.write.Record.Revision[:]) {
		err = notApplied(err) // whatever it is, it isn't what this write would store
	}
	if err == nil && !o.creates() && rec.Revision == o.write.Expect {
		return false
	}
	o.settle(rec, false, err)
	return true
}

// refuseLate settles writes as too late if that is certain. An earlier try, over a connection
// that was dropped, may have made it in time, in a transaction that a slow disk or standby lets
// commit only now, and until then nobody sees it. So refuseLate makes the writes without their
// deadlines in a transaction that it rolls back. That waits up to the lock timeout for anybody
// at work on these records; if it isn't enough, the write is unknown. A write that can be made
// now hasn't been made before, and never will be. Another round looks at the rest.
//
// A crash at any point leaves nothing: the server rolls back.
func (s *Store) refuseLate(conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	tries := make([]*op, len(ops))
	for i, o := range ops {
		tries[i] = &op{id: o.id, record: o.record, write: store.Write{Record: o.write.Record, Expect: o.write.Expect}}
	}
	_, err := conn.Exec(unending, "BEGIN")
	if err == nil {
		err = s.send(conn, tries, lockTimeout)
		_, end := conn.Exec(unending, "ROLLBACK")
		err = cmp.Or(err, end)
	}
	if err != nil {
		if conn.PgConn().TxStatus() != 'I' {
			_ = conn.Close(s.base)
		}
		return err
	}
	for i, o := range ops {
		if tries[i].named {
			o.settle(nil, false, fmt.Errorf("pgstore: apply: %w", store.ErrTooLate))
		}
	}
	return nil
}

// lockedIDs are identities with a last write that waited too long for a lock. The next write of
// one goes alone, and waits for no lock: in a batch it would cause all of them to be rolled
// back and sent again in parts. It may be used concurrently.
type lockedIDs struct {
	mu  sync.Mutex
	ids map[digest]bool
}

func (l *lockedIDs) has(id digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id]
}

func (l *lockedIDs) note(ops []*op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range ops {
		switch {
		case !metLock(o.err):
			delete(l.ids, o.id)
		case len(l.ids) >= maxLocked || l.ids == nil:
			l.ids = map[digest]bool{o.id: true}
		default:
			l.ids[o.id] = true
		}
	}
}
