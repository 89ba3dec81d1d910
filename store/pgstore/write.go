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

// writeBatch makes the writes of a batch and gives each its result.
func (s *Store) writeBatch(ops []*op) {
	// Locks are taken in the order of identities, so that stores in other processes
	// do not wait for each other in a circle.
	slices.SortFunc(ops, func(a, b *op) int { return bytes.Compare(a.id[:], b.id[:]) })
	timeout := s.opts.LockTimeout
	if len(ops) == 1 && s.locked.has(ops[0].id) {
		timeout = noLockTimeout
	}
	s.writeParts(ops, timeout)
	for _, o := range ops {
		s.locked.note(o.id, metLock(o.err))
		if o.applied {
			s.changed(&o.id)
		}
	}
}

const (
	// noLockTimeout is the shortest that a server has.
	noLockTimeout = time.Millisecond
	// rounds is how often a write looks again if its record keeps coming and going.
	rounds = 10
	// maxLocked bounds the memory for lockedIDs. To forget one costs a batch sent in parts.
	maxLocked = 1000
)

// writeParts makes writes, together if that is possible. When the server refuses them
// because of a row, which rolls back all of them, it sends halves, and halves of those, so
// that one poisoned write costs the others time and nothing else. Writes that met a lock
// have waited for it by then.
func (s *Store) writeParts(ops []*op, lockTimeout time.Duration) {
	err := s.commit(s.writes, func(ctx context.Context, conn *pgx.Conn) error { return s.writeRounds(ctx, conn, ops, lockTimeout) })
	// What a round has committed is settled, and keeps its result.
	ops = unsettled(ops)
	switch {
	case err == nil && len(ops) > 0:
		panic("pgstore: a write has no result")
	case len(ops) > 1 && rolledBackByRow(err):
		if metLock(err) {
			lockTimeout = noLockTimeout
		}
		half := len(ops) / 2
		s.writeParts(ops[:half], lockTimeout)
		s.writeParts(ops[half:], lockTimeout)
	default:
		for _, o := range ops {
			if o.committed { // an error of a later round is not about the first
				o.fail(fmt.Errorf("pgstore: apply: the result is unknown: %v", err))
				continue
			}
			o.fail(fmt.Errorf("pgstore: apply: %w", err))
		}
	}
}

// writeRounds makes writes, of which no two are of one identity, and settles all of
// them, or returns an error. What a round has settled is committed, and the error of a
// later one isn't about it; none of the rounds so far has made the others.
func (s *Store) writeRounds(ctx context.Context, conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	for range rounds {
		if ops = unsettled(ops); len(ops) == 0 {
			return nil
		}
		if err := s.writeOnce(ctx, conn, ops, lockTimeout); err != nil {
			return err
		}
	}
	if len(unsettled(ops)) > 0 {
		return notApplied(errors.New("the record comes and goes too often"))
	}
	return nil
}

// version is a record's revision, by its identity.
type version struct {
	id       digest
	revision store.Revision
}

func scanVersion(row values) (v version, err error) {
	if copy(v.id[:], row[0]) != len(row[0]) || copy(v.revision[:], row[1]) != len(row[1]) || len(row[0])+len(row[1]) != len(v.id)+len(v.revision) {
		err = errGarbled
	}
	return v, err
}

// writeOnce sends writes once, in one transaction. It settles those that were made, and
// those that something stands in the way of. The server names each write that it has made,
// by identity and revision. A write counts as applied only if it was named and the commit
// was reported, never because nothing was said of it.
//
// A crash before the commit leaves none of the writes. A crash after it leaves all that
// were made, and perhaps nobody was told: the engine sends them again and finds them.
func (s *Store) writeOnce(ctx context.Context, conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	rest := make(map[digest]*op, len(ops))
	for _, o := range ops {
		rest[o.id] = o
	}
	made, err := transact(ctx, s, conn, scanVersion, s.writing(ops, lockTimeout)...)
	if err != nil {
		return err
	}
	for _, v := range made {
		if o := rest[v.id]; o == nil || o.write.Record.Revision != v.revision {
			return s.garbled(conn)
		}
		delete(rest, v.id)
	}
	for _, o := range ops {
		if rest[o.id] == nil {
			o.wrote()
		} else {
			o.committed = true
		}
	}
	if len(rest) == 0 {
		return nil
	}
	late, err := s.lookAtWhatIsThere(ctx, conn, unsettled(ops))
	if err != nil || len(late) == 0 {
		return err
	}
	return s.refuseLate(ctx, conn, late, lockTimeout)
}

// lookAtWhatIsThere reads what is stored in place of writes that weren't made. It settles
// them as refused by that, and returns those that could be made as far as it sees, but whose
// deadline is over. Another round may make the rest.
func (s *Store) lookAtWhatIsThere(ctx context.Context, conn *pgx.Conn, ops []*op) (late []*op, err error) {
	ids := make([][]byte, len(ops))
	for i, o := range ops {
		ids[i] = o.id[:]
	}
	found, err := s.look(ctx, conn, ids)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		r := found[o.id]
		var rec *semel.Record
		var err error
		there := r.revision != nil
		if there {
			rec, err = r.decode()
		}
		if err != nil && !bytes.Equal(r.revision, o.write.Record.Revision[:]) {
			err = notApplied(err) // whatever it is, it is not what was to be written
		}
		switch {
		case !there && !o.creates():
			o.refused(nil, nil)
		case there && (err != nil || o.creates() || rec.Revision != o.write.Expect):
			o.refused(rec, err)
		case o.deadline != 0 && r.at >= int64(o.deadline)/1000: // in microseconds
			late = append(late, o)
		}
	}
	return late, nil
}

// refuseLate settles writes as too late if that is certain. An earlier try of one, over a
// connection that was dropped, may have been made in time by a transaction that commits only
// now, when a disk or a standby is slow, and until then nobody sees it. So refuseLate makes the
// writes without their deadlines in a transaction that it rolls back. That waits, for the lock
// timeout, for whoever is at work on these records: then the write is unknown. A write that
// can be made hasn't been made before, and can't be any more. Another round looks at the rest.
//
// A crash at any point leaves nothing: the server rolls back.
func (s *Store) refuseLate(ctx context.Context, conn *pgx.Conn, ops []*op, lockTimeout time.Duration) error {
	tries := make([]*op, len(ops))
	for i, o := range ops {
		tries[i] = &op{id: o.id, record: o.record, write: store.Write{Record: o.write.Record, Expect: o.write.Expect}}
	}
	_, err := conn.Exec(ctx, "BEGIN")
	var made []version
	if err == nil {
		made, err = transact(ctx, s, conn, scanVersion, s.writing(tries, lockTimeout)...)
		_, end := conn.Exec(ctx, "ROLLBACK")
		err = cmp.Or(err, end)
	}
	if err != nil {
		if conn.PgConn().TxStatus() != 'I' {
			_ = conn.Close(s.base)
		}
		return err
	}
	for _, o := range ops {
		if slices.Contains(made, version{o.id, o.write.Record.Revision}) {
			o.fail(fmt.Errorf("pgstore: apply: %w", store.ErrTooLate))
		}
	}
	return nil
}

// lockedIDs are identities whose last write met a lock for too long. The next write of one
// is sent by itself, and waits for no lock: it would have a whole batch rolled back and
// sent again in parts. They may be used concurrently.
type lockedIDs struct {
	mu  sync.Mutex
	ids map[digest]bool
}

func (l *lockedIDs) has(id digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id]
}

func (l *lockedIDs) note(id digest, locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !locked:
		delete(l.ids, id)
	case len(l.ids) >= maxLocked || l.ids == nil:
		l.ids = map[digest]bool{id: true}
	default:
		l.ids[id] = true
	}
}
