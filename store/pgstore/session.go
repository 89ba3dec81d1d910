package pgstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A connection that leads straight to a server prepares the statements of every day
// once, which spares the server from planning them each time: that takes longer
// than running them. One that leads to a pooler may reach another session with
// each transaction, so nothing is prepared there.

// prepared is where a direct connection notes the names of what it has prepared, by
// its text.
const prepared = "semel.prepared"

// plans makes the server plan a statement once and for all, and look rows up by the
// index. It would plan for the table as it is on the first day, when reading all of
// it is quicker, and keep that plan while the table grows. These are hints to the
// planner; no result depends on them.
const plans = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; " +
	"SET enable_mergejoin = off; SET jit = off"

// sessions prepares new connections, with a lock timeout.
func sessions(lockTimeout time.Duration) func(ctx context.Context, conn *pgx.Conn) error {
	settings := plans + "; SET lock_timeout = " + milliseconds(lockTimeout)
	return func(ctx context.Context, conn *pgx.Conn) error { return prepareSession(ctx, conn, settings) }
}

// prepareSession finds out whether a new connection is direct: a pooler tells its
// clients process numbers that it has made up.
func prepareSession(ctx context.Context, conn *pgx.Conn, settings string) error {
	var pid int64
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	pc := conn.PgConn()
	if pid != int64(pc.PID()) {
		return nil
	}
	if _, err := pc.Exec(ctx, settings).ReadAll(); err != nil {
		// An engine that has other settings plans in another way, too.
		if _, ok := errors.AsType[*pgconn.PgError](err); ok {
			return nil
		}
		return err
	}
	pc.CustomData()[prepared] = map[string]string{}
	return nil
}

// add adds a statement to a batch, by its name where it can be prepared.
func (st *statement) add(ctx context.Context, conn *pgconn.PgConn, b *pgconn.Batch) error {
	names, direct := conn.CustomData()[prepared].(map[string]string)
	if !direct || !st.often {
		b.ExecParams(st.sql.any, st.values, st.oids, st.formats, binaryFormat)
		return nil
	}
	name, ok := names[st.sql.direct]
	if !ok {
		name = "semel_" + strconv.Itoa(len(names))
		if _, err := conn.Prepare(ctx, name, st.sql.direct, st.oids); err != nil {
			return err
		}
		names[st.sql.direct] = name
	}
	b.ExecPrepared(name, st.values, st.formats, binaryFormat)
	return nil
}

// stale reports that a prepared statement is gone or no longer fits the table. The
// connection is of no further use.
func stale(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pe.Code == "26000" || pe.Code == "0A000")
}
