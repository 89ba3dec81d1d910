package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

// rounds is how often a write looks again when the record comes and goes while it
// looks.
const rounds = 10

// send makes the writes, of which no two are of one identity, each round in one
// transaction, and settles all of them, or returns an error. One that a round has
// settled is committed, and the error of a later round is not about it; the others
// were not made by any of the rounds before.
//
// A crash before a round's commit leaves nothing of it. A crash after it leaves all,
// and nobody may have been told: the engine sends them again and finds them.
func (s *statements) send(ctx context.Context, conn *pgconn.PgConn, ops []*op) error {
	for range rounds {
		// What an earlier run has settled was committed.
		if ops = unsettled(ops); len(ops) == 0 {
			return nil
		}
		if err := s.write(ctx, conn, ops); err != nil {
			return err
		}
		// The rest met another writer at the same time, whose row is there for a
		// statement that begins now, or came too late.
		if ops = unsettled(ops); len(ops) == 0 {
			return nil
		}
		if err := s.look(ctx, conn, ops); err != nil {
			return err
		}
	}
	if ops = unsettled(ops); len(ops) == 0 {
		return nil
	}
	return notApplied(errors.New("the record comes and goes too often"))
}

// unsettled are those of ops that are not settled.
func unsettled(ops []*op) []*op {
	if !slices.ContainsFunc(ops, func(o *op) bool { return o.settled }) {
		return ops
	}
	var open []*op
	for _, o := range ops {
		if !o.settled {
			open = append(open, o)
		}
	}
	return open
}

// write sends the writes once, and settles those of which the server says what became
// of them.
func (s *statements) write(ctx context.Context, conn *pgconn.PgConn, ops []*op) error {
	creates, updates := parted(ops)
	var room [2]*statement
	batch := room[:0]
	if len(creates) > 0 {
		batch = append(batch, s.creating(creates))
	}
	if len(updates) > 0 {
		batch = append(batch, s.updating(updates))
	}
	var answers [2]answer
	for i, st := range batch {
		answers[i].hear(st)
	}
	err := executeAll(ctx, conn, batch...)
	for _, st := range batch {
		st.arena.discard()
	}
	if err != nil {
		return err
	}
	for i := range batch {
		answers[i].settle()
	}
	return nil
}

// look reads what is stored in place of writes that were not made, and settles them by
// it: by the record that stands in the way, or as too late where what a write expects
// is stored and its deadline is over. The others may be made by another try.
func (s *statements) look(ctx context.Context, conn *pgconn.PgConn, ops []*op) error {
	ids := make([]digest, len(ops))
	open := make(map[digest]*op, len(ops))
	for i, o := range ops {
		ids[i], open[o.id] = o.id, o
	}
	found := make(map[*op]finding, len(ops))
	get := s.getting(ids)
	get.each = func(row [][]byte) error {
		o := open[digestOf(row[0])]
		switch {
		case row[1] == nil: // of the barrier
		case o == nil || found[o].stored != nil:
			return errGarbled
		default:
			found[o] = o.inTheWay(row, false)
		}
		return nil
	}
	batch := []*statement{get}
	var now semel.Instant // before they are read
	if slices.ContainsFunc(ops, func(o *op) bool { return o.write.Deadline != 0 }) {
		clock := newStatement(clockText).prepare()
		clock.each = func(row [][]byte) (err error) { now, err = clockRow(row); return err }
		batch = []*statement{clock, get}
	}
	if err := executeAll(ctx, conn, batch...); err != nil {
		return err
	}
	for _, o := range ops {
		f := found[o]
		switch {
		case f.stored == nil && !o.creates():
			o.refused(new(semel.Record), nil)
		case f.stored != nil && (f.err != nil || o.creates() || f.stored.Revision != o.write.Expect):
			o.refused(f.stored, f.err)
		case o.write.Deadline != 0 && microseconds(now) >= microseconds(o.deadline):
			o.fail(fmt.Errorf("pgstore: apply: %w", semel.ErrTooLate))
		}
	}
	return nil
}

// parted are the writes that create records, and those that change them.
func parted(ops []*op) (creates, updates []*op) {
	other := func(o *op) bool { return o.creates() != ops[0].creates() }
	switch {
	case slices.ContainsFunc(ops, other):
	case ops[0].creates():
		return ops, nil
	default:
		return nil, ops
	}
	for _, o := range ops {
		if o.creates() {
			creates = append(creates, o)
		} else {
			updates = append(updates, o)
		}
	}
	return creates, updates
}
