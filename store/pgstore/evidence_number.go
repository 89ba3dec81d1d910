package pgstore

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// number gives all entries a number that were committed before it was called, and
// returns how many entries have one.
//
// Entries are written in the order of a sequence, which has gaps: of transactions
// that were rolled back, and of those that are still on their way, whose entries
// come later. So whoever reads gives them numbers of their own, in the order of the
// sequence, one reader at a time. The lock ends with its transaction, so a pooler
// may stand between. Each statement sees what was committed before it began, so
// behind the lock it sees all numbers that were given. Where the default isolation
// makes it see less, the server refuses its change of the state's row, and it is run
// again.
//
// Of what is missing up to the last entry that got a number the state keeps a list.
// It is looked for each time, and given up when the transactions are over that may
// have it: any such had a number of the sequence, hence a transaction number, before
// the mark was taken, which is a later transaction number; and a transaction number
// below a snapshot's xmin is of a transaction that has ended as the snapshot shows
// it. Nothing is given up that this snapshot shows. There are two lists, for the
// mark of one must stay until it is over while others come. They name what is
// missing, so a database that was restored from a dump, whose transaction numbers
// begin anew, loses nothing either.
//
// Of one identity a later write takes its numbers of the sequence when it has
// changed the row, that is after the earlier one has committed, or in the same
// transaction after it; and a batch has one write of an identity. So its entries are
// behind the others in the sequence, and no snapshot shows them without those: they
// are in the order of their writes, whether they get numbers together or one after
// the other.
//
// A crash before the commit leaves the entries without numbers, for the next reader
// to give. A crash after it leaves them numbered. Numbers, list and state change
// together.
func (s *Store) number(ctx context.Context) (numbered uint64, err error) {
	for more := true; more; {
		numbered, more, err = s.numberSome(ctx)
		if err != nil {
			return 0, err
		}
	}
	return numbered, nil
}

// numberSome gives numbers once. They are given in portions so that a long log that
// nobody has read for long is no endless transaction: who gives up has left some.
func (s *Store) numberSome(ctx context.Context) (numbered uint64, more bool, err error) {
	type result struct {
		numbered    uint64
		known, more bool
	}
	batch := []*statement{
		newStatement(s.log.lock, textValue("semel evidence "+s.opts.Schema)).prepare(),
		newStatement(s.log.number).prepare(),
	}
	got := make(chan result, 1)
	err = s.writeEvidence(ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		var r result
		batch[1].each = func(row [][]byte) error {
			r = result{binary.BigEndian.Uint64(row[0]), true, row[1][0] == 1}
			return nil
		}
		err := executeAll(ctx, conn, batch...)
		if err == nil && !r.known {
			err = errors.New("the state of the evidence log is gone")
		}
		if err == nil {
			got <- r
		}
		return err
	})
	if err != nil {
		return 0, false, err
	}
	r := <-got
	return r.numbered, r.more, nil
}
