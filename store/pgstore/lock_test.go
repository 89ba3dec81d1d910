package pgstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// commitsOf is how many transactions have written records.
func commitsOf(t *testing.T, database, keys string) (n, records int) {
	t.Helper()
	conn := pgtest.Shared(t).Conn(t, database)
	noError(t, conn.QueryRow(t.Context(), "SELECT count(DISTINCT xmin::text), count(*) FROM semel.semel_records WHERE key LIKE $1", keys).Scan(&n, &records))
	return n, records
}

// TestDuplicatesOfAJoinedCall delivers duplicates of a call that a transaction of the
// application has claimed and not committed, beside new calls of others.
func TestDuplicatesOfAJoinedCall(t *testing.T) {
	const others = 60
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, LockTimeout: 50 * time.Millisecond, AcquireTimeout: 20 * time.Second})
	t.Cleanup(func() { mustClose(t, s) })
	tx, err := server.Conn(t, database).Begin(t.Context())
	noError(t, err)
	call := numbered("joined", 1)
	j := &joined{store: s, link: pgxLink(tx)}
	if lock, err := j.Lock(t.Context(), call.ID, ""); err != nil || lock != store.TxLocked {
		t.Fatal(lock, err)
	}
	if applied, err := j.Apply(t.Context(), store.Write{Record: new(call)}); err != nil || !applied {
		t.Fatal(applied, err)
	}
	turn := func(name string) {
		t.Helper()
		writes := []store.Write{}
		for i := range others {
			writes = append(writes, store.Write{Record: new(numbered(fmt.Sprint(name, i), 1))})
		}
		for i := range 5 {
			writes = append(writes, store.Write{Record: new(numbered("joined", byte(10+i)))})
		}
		for i, r := range together(t, w, s, nil, writes...) {
			switch {
			case i < others && (r.err != nil || !r.applied):
				t.Errorf("%s: a call of another got %v, %v", name, r.applied, r.err)
			case i >= others && (!errors.Is(r.err, store.ErrNotApplied) || sqlState(r.err) != "55P03"):
				t.Errorf("%s: a duplicate got %v, %v", name, r.applied, r.err)
			}
		}
	}
	// At first nobody knows which it is: it is searched for in halves.
	turn("first")
	if n, records := commitsOf(t, database, "first%"); n > 8 || records != others {
		t.Errorf("%d calls of others took %d commits", records, n)
	}
	// Then it is kept apart.
	for _, name := range []string{"second", "third"} {
		turn(name)
		if n, records := commitsOf(t, database, name+"%"); n != 1 || records != others {
			t.Errorf("%d calls of others took %d commits", records, n)
		}
	}
	noError(t, tx.Rollback(t.Context()))
	put(t, s, numbered("joined", 100), store.Revision{})
	if len(s.locked.ids) != 0 {
		t.Errorf("%d identities are still kept apart", len(s.locked.ids))
	}
}

// A damaged page is the error of the rows that are on it.
func TestADamagedRowFailsByItself(t *testing.T) {
	const others = 60
	for _, code := range []string{"XX000", "XX001", "XX002"} {
		t.Run(code, func(t *testing.T) {
			server := pgtest.Shared(t)
			database := server.Database(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 20 * time.Second})
			t.Cleanup(func() { mustClose(t, s) })
			raising(t, database, "at once", "bad", code)
			writes := []store.Write{{Record: new(numbered("bad", 1))}}
			for i := range others {
				writes = append(writes, store.Write{Record: new(numbered(fmt.Sprint("good", i), 1))})
			}
			for i, r := range together(t, w, s, nil, writes...) {
				if bad := i == 0; bad != (sqlState(r.err) == code) || bad == r.applied {
					t.Errorf("the write of %s got %v, %v", r.write.Record.ID.Key, r.applied, r.err)
				}
			}
			if n, records := commitsOf(t, database, "good%"); n > 8 || records != others {
				t.Errorf("%d others took %d commits", records, n)
			}
		})
	}
}
