package pgstore

import (
	"bytes"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// op is a write in progress.
type op struct {
	gather.Item

	id       digest
	write    store.Write
	record   []byte        // for its column
	deadline store.Instant // the write's, by the server's clock; zero: none
	named    bool          // the server's answer names it as applied
	there    *row          // what stands in its way, if that answer has it
	// committed: a transaction with the write was committed, but its answer didn't name it.
	// Something stood in the way, or the answer was incomplete; a later refusal proves nothing.
	committed bool

	// The result, once it is settled.
	settled bool
	current *semel.Record // nil after an error
	applied bool
	err     error

	room [320]byte // buffer for record, if that fits
}

func (s *Store) newOp(w store.Write) (*op, error) {
	o := &op{id: w.Record.ID.Digest(), write: w}
	var err error
	if o.record, err = appendRecord(o.room[:0], w.Record); err != nil {
		return nil, notApplied(err)
	}
	if w.Deadline != 0 {
		o.deadline = s.clock.Servers(w.Deadline)
	}
	return o, nil
}

func (o *op) creates() bool { return o.write.Expect.IsZero() }

// Size is about how much the write takes in a statement, for [gather.Queue].
func (o *op) Size() int {
	n := len(o.record) + len(o.write.Record.Result.Data) + 512
	for i := range o.write.Evidence {
		n += len(o.write.Evidence[i].Leaf) + len(o.write.Evidence[i].Opening) + 96
	}
	return n
}

// settle gives a write its result: that it was applied, the record that stood in its way, which
// may be none, or an error. It does so once: a write with a result never gets an error later,
// least of all if it was committed.
func (o *op) settle(current *semel.Record, applied bool, err error) {
	if o.settled {
		panic("pgstore: a write has two results")
	}
	if err != nil {
		current = nil
	}
	o.current, o.applied, o.settled, o.err = current, applied, true, err
}

// unsettled returns the ops without a result.
func unsettled(ops []*op) []*op { return those(ops, func(o *op) bool { return !o.settled }) }

// those returns the ops of a kind, in their order. If these are all or none, nothing is copied.
func those(ops []*op, are func(*op) bool) (some []*op) {
	if !slices.ContainsFunc(ops, func(o *op) bool { return !are(o) }) {
		return ops
	}
	for _, o := range ops {
		if are(o) {
			some = append(some, o)
		}
	}
	return some
}

// byIdentity orders the writes of a batch. All stores take locks in this order, so that no two
// wait for each other in a circle.
func byIdentity(a, b *op) int { return bytes.Compare(a.id[:], b.id[:]) }

// answersWrite settles a write that waits behind another of its identity, if the same record or
// the same lock stands in its way.
func answersWrite(sent, waiting *op) bool {
	switch {
	case sent.err == nil && sent.current == nil && !waiting.creates(),
		sent.err == nil && sent.current != nil && waiting.write.Expect != sent.current.Revision:
		waiting.settle(sent.current, false, nil)
	case metLock(sent.err):
		waiting.settle(nil, false, sent.err)
	default:
		return false
	}
	return true
}

// memory returns memory for the parameters of a statement, which a connection keeps among its
// data for the next batch: the driver copies them when it sends them.
func (w *writeStatements) memory(data map[string]any, ops []*op) []byte {
	size := 24 * len(w.columns)
	for _, o := range ops {
		size += o.Size()
	}
	b, _ := data[w.many].([]byte)
	if cap(b) < size {
		b = make([]byte, 0, size)
		data[w.many] = b
	}
	return b
}

// writing returns the statements for writes: one creates records, one changes some. They take
// locks in the order of the parameters. Only a write that creates a record waits for another such.
func (s *Store) writing(data map[string]any, ops []*op, lockTimeout time.Duration) (list []statement) {
	for _, creates := range []bool{true, false} {
		some, w := those(ops, func(o *op) bool { return o.creates() == creates }), s.sql.writes[creates]
		switch {
		case len(some) == 0:
		case slices.ContainsFunc(some, func(o *op) bool { return len(o.write.Evidence) > 0 }):
			list = append(list, statement{sql: w.noted, args: w.noting(data, some, lockTimeout)})
		case creates && s.meets.Load():
			list = append(list, statement{sql: w.met, args: w.rows(data, some, lockTimeout)})
		case len(some) == 1:
			list = append(list, statement{sql: w.one, args: append(scalarsOf(w.memory(data, some), w.columns, some[0]), milliseconds(lockTimeout))})
		default:
			list = append(list, statement{sql: w.many, args: w.rows(data, some, lockTimeout)})
		}
	}
	return list
}

// rows returns the parameters of statements for any number of writes.
func (w *writeStatements) rows(data map[string]any, ops []*op, lockTimeout time.Duration) [][]byte {
	return append(arrays(w.memory(data, ops), w.columns, ops), milliseconds(lockTimeout))
}

// noting returns the parameters of statements for writes with evidence.
func (w *writeStatements) noting(data map[string]any, ops []*op, lockTimeout time.Duration) [][]byte {
	var evidence []noted
	for _, o := range ops {
		evidence = withID(evidence, o.id[:], o.write.Evidence)
	}
	return append(w.rows(data, ops, lockTimeout), arrays(nil, entryColumns, evidence)...)
}
