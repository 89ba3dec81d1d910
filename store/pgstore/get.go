package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// look reads what is stored of identities, which all differ, behind a barrier. A row without
// a revision says that nothing is stored; its at is the server's clock in microseconds.
func (s *Store) look(ctx context.Context, conn *pgx.Conn, ids [][]byte) (map[digest]row, error) {
	rows, err := transact(ctx, s, conn, scanRow, statement{sql: s.sql.get, args: [][]byte{array("bytea", ids)}})
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.id == nil }) // that of the barrier
	found := make(map[digest]row, len(ids))
	for _, r := range rows {
		if len(r.id) == len(digest{}) {
			found[digest(r.id)] = r
		}
	}
	for _, id := range ids {
		if found[digest(id)].id == nil || len(rows) != len(ids) {
			return nil, s.garbled(conn)
		}
	}
	return found, nil
}

// get is one Get on its way.
type get struct {
	gather.Item

	id  digest
	rec *semel.Record
	err error
}

// Size is for [gather.Queue].
func (*get) Size() int { return 0 }

// Get is [store.Store.Get].
func (s *Store) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	g := &get{id: id.Digest()}
	if err := s.readers.Do(ctx, g); err != nil {
		return nil, unanswered(err)
	}
	return g.rec, g.err
}

// getBatch reads the rows of a batch, each identity once.
func (s *Store) getBatch(batch []*get) {
	byID := make(map[digest][]*get, len(batch))
	ids := make([][]byte, 0, len(batch))
	for _, g := range batch {
		if byID[g.id] == nil {
			ids = append(ids, g.id[:])
		}
		byID[g.id] = append(byID[g.id], g)
	}
	var found map[digest]row
	err := s.commit(s.reads, func(ctx context.Context, conn *pgx.Conn) (err error) {
		found, err = s.look(ctx, conn, ids)
		return err
	})
	for id, gets := range byID {
		var rec *semel.Record
		result := err
		if err != nil {
			result = fmt.Errorf("pgstore: get: %w", err)
		} else if r := found[id]; r.revision == nil {
			result = semel.ErrNotFound
		} else {
			rec, result = r.decode()
		}
		for _, g := range gets {
			g.rec, g.err = rec, result
		}
	}
}

// Due is [store.DueIndex.Due], in the order of NextAt to the nanosecond. A row that can't be
// read has its place in a page, too, so the next page begins behind it.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	from, err := decodePlace(q.After, inDue)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	from = cmp.Or(from, &place{math.MinInt64, []byte{}})
	rows, err := query(ctx, s, scanRow, statement{sql: s.sql.due, args: [][]byte{bigint(int64(q.Until)), bigint(from.at), from.id, bigint(int64(q.Limit))}})
	if err != nil {
		return page, fmt.Errorf("pgstore: due: %w", err)
	}
	for _, r := range rows {
		if rec, err := r.decode(); err != nil {
			page.Unreadable = append(page.Unreadable, err)
		} else {
			page.Records = append(page.Records, *rec)
		}
	}
	if len(rows) == q.Limit {
		page.Next = rows[len(rows)-1].place(inDue)
	}
	return page, nil
}
