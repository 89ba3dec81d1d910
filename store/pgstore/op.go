package pgstore

import (
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// op is one write on its way.
type op struct {
	gather.Item

	id       digest
	write    store.Write
	record   []byte        // for its column
	deadline store.Instant // that of the write, by the server's clock; zero: none
	// committed: a transaction with the write was committed, and its answer didn't name it.
	// Something stood in the way, or the answer wasn't whole; a later refusal doesn't tell.
	committed bool

	// What came of it, once it is settled.
	settled bool
	current *semel.Record // nil after an error
	applied bool
	err     error
}

func (s *Store) newOp(w store.Write) (*op, error) {
	record, err := encodeRecord(w.Record)
	if err != nil {
		return nil, notApplied(err)
	}
	o := &op{id: w.Record.ID.Digest(), write: w, record: record}
	if w.Deadline != 0 {
		o.deadline = s.clock.Servers(w.Deadline)
	}
	return o, nil
}

func (o *op) creates() bool { return o.write.Expect.IsZero() }

// Size is about what the write takes in a statement, for [gather.Queue].
func (o *op) Size() int {
	n := len(o.record) + len(o.write.Record.Result.Data) + 512
	for i := range o.write.Evidence {
		n += len(o.write.Evidence[i].Leaf) + len(o.write.Evidence[i].Opening) + 96
	}
	return n
}

// wrote settles a write that was applied.
func (o *op) wrote() { o.settle(o.write.Record, true, nil) }

// refused settles a write by the record that stood in its way, which may be none, or by
// the error of one that can't be read.
func (o *op) refused(by *semel.Record, err error) { o.settle(by, false, err) }

// fail settles a write without a result.
func (o *op) fail(err error) { o.settle(nil, false, err) }

// settle gives a write its result, once: a write that has one, above all if it was
// committed, never gets an error afterwards.
func (o *op) settle(current *semel.Record, applied bool, err error) {
	if o.settled {
		panic("pgstore: a write has two results")
	}
	if err != nil {
		current = nil
	}
	o.current, o.applied, o.settled, o.err = current, applied, true, err
}

// unsettled are those of ops that are not settled.
func unsettled(ops []*op) []*op {
	if !slices.ContainsFunc(ops, func(o *op) bool { return o.settled }) {
		return ops
	}
	return slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.settled })
}

// answersWrite settles a write that waits behind another of its identity, if what the other
// has found stands in its way, too, or the same lock does.
func answersWrite(sent, waiting *op) bool {
	switch {
	case sent.err == nil && sent.current == nil && !waiting.creates(),
		sent.err == nil && sent.current != nil && waiting.write.Expect != sent.current.Revision:
		waiting.refused(sent.current, nil)
	case metLock(sent.err):
		waiting.fail(sent.err)
	default:
		return false
	}
	return true
}

// writing returns the statements that make writes: one for those that create records, and
// one for those that change them. Locks are taken in the order of the parameters. Only
// those who create a record wait for another who does.
func (s *Store) writing(ops []*op, lockTimeout time.Duration) (list []statement) {
	for _, kind := range []struct {
		creates bool
		sql     string
		members []member
	}{{true, s.sql.create, createMembers}, {false, s.sql.update, updateMembers}} {
		other := func(o *op) bool { return o.creates() != kind.creates }
		some := ops
		if slices.ContainsFunc(ops, other) {
			some = slices.DeleteFunc(slices.Clone(ops), other)
		}
		if len(some) == 0 {
			continue
		}
		var noted entryColumns
		for _, o := range some {
			noted.add(o.id[:], o.write.Evidence)
		}
		args := append(append(arrays(kind.members, some), milliseconds(lockTimeout)), noted.args()...)
		list = append(list, statement{sql: kind.sql, args: args})
	}
	return list
}
