package pgstore

import (
	"bytes"
	"strconv"

	"github.com/semelhq/semel"
)

// answer is what a statement says about its writes. It is read, not inferred: what the
// statement counts, what it names and how many rows it says it has sent must agree,
// and name these writes, by their revisions; otherwise nothing of it is believed.
//
// It becomes the result of the writes when their transaction has committed, and is
// forgotten when that was rolled back.
type answer struct {
	ops   []*op
	mark  string // of the row that counts; empty: the statement names each write that it has made
	said  bool   // it has counted
	count int
	named int            // those that it says it has made one by one
	found []finding      // for each of ops; nil: none was named
	index map[digest]int // of ops, where they are many
}

// finding is what a run has found of a write.
type finding struct {
	made   bool
	stored *semel.Record // what stood in the way
	err    error         // why that can't be read
}

// hear has the answer read from a statement.
func (a *answer) hear(st *statement) {
	a.ops, a.mark = st.ops, st.sql.mark
	st.each, st.end = a.row, a.end
}

// row takes a row: how many writes were made, in a row that is marked; one that was
// made; what stood in the way of one; or nothing, the row of the barrier.
func (a *answer) row(row [][]byte) error {
	switch {
	case row[0] == nil && len(row) == 4:
		n, err := strconv.Atoi(string(row[1]))
		if err != nil || a.said || string(row[2]) != a.mark || !bytes.Equal(row[3], a.ops[0].write.Record.Revision[:]) {
			return errGarbled
		}
		a.said, a.count = true, n
		return nil
	case row[1] == nil:
		return nil
	}
	i := a.find(row[0])
	if i < 0 {
		return errGarbled
	}
	if a.found == nil {
		a.found = make([]finding, len(a.ops))
	}
	f, o := &a.found[i], a.ops[i]
	if len(row) == 2 || row[2] == nil {
		if f.made || !bytes.Equal(row[1], o.write.Record.Revision[:]) {
			return errGarbled
		}
		f.made = true
		a.named++
		return nil
	}
	if f.stored != nil {
		return errGarbled
	}
	*f = o.inTheWay(row, f.made)
	return nil
}

// find is the number of a write.
func (a *answer) find(id []byte) int {
	if len(a.ops) == 1 {
		if bytes.Equal(id, a.ops[0].id[:]) {
			return 0
		}
		return -1
	}
	if a.index == nil {
		a.index = make(map[digest]int, len(a.ops))
		for i, o := range a.ops {
			a.index[o.id] = i
		}
	}
	// An identity that is damaged in its row is not 32 bytes long, or another.
	if i, ok := a.index[digestOf(id)]; ok && len(id) == len(digest{}) {
		return i
	}
	return -1
}

// end checks what was said when all of it was read.
func (a *answer) end() error {
	switch {
	case a.mark == "": // each is named
	case !a.said || a.count < 0 || a.count > len(a.ops):
		return errGarbled
	case a.count < len(a.ops) && a.count != a.named || a.count == len(a.ops) && a.named > 0:
		return errGarbled // it names them where it has not made all, and only there
	}
	return nil
}

// settle gives the writes their results: the transaction is committed.
func (a *answer) settle() {
	all := a.said && a.count == len(a.ops)
	for i, o := range a.ops {
		switch {
		// A row that stood in the way, was purged and replaced by this write was
		// read too, so what was made counts for more.
		case all || a.found != nil && a.found[i].made:
			o.wrote()
		case a.found != nil && a.found[i].stored != nil:
			o.refused(a.found[i].stored, a.found[i].err)
		}
	}
}

// inTheWay is what a row says that stands in the way of a write.
func (o *op) inTheWay(row [][]byte, made bool) finding {
	rec, err := decodeRecord(row[0], row[1], row[2], row[3])
	if err != nil && !bytes.Equal(row[1], o.write.Record.Revision[:]) {
		err = notApplied(err) // whatever it is, it is not what was to be written
	}
	return finding{made: made, stored: &rec, err: err}
}

func digestOf(b []byte) (d digest) {
	if len(b) == len(d) {
		copy(d[:], b)
	}
	return d
}

// Writes get their results by one of the following, and once. A write that has one,
// above all one that was committed, never gets an error afterwards.

// wrote settles a write that was applied.
func (o *op) wrote() { o.settle(&o.write.Record, true, nil) }

// refused settles a write that something else stood in the way of, which may be
// nothing at all, or that can't be read.
func (o *op) refused(by *semel.Record, err error) { o.settle(by, false, err) }

// fail settles a write without a result.
func (o *op) fail(err error) { o.settle(nil, false, err) }

func (o *op) settle(current *semel.Record, applied bool, err error) {
	if o.settled {
		panic("pgstore: a write has two results")
	}
	if err != nil {
		current = nil
	}
	o.current, o.applied, o.settled, o.err = current, applied, true, err
}
