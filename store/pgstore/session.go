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

// prepared is where a direct connection notes what it has prepared, by its text.
const prepared = "semel.prepared"

// plans makes the server plan a statement once and for all, and look rows up by the
// index. It would plan for the table as it is on the first day, when reading all of
// it is quicker, and keep that plan while the table grows. These are hints to the
// planner; no result depends on them. A page of an index is read in its order, and no
// further than the page.
const plans = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; " +
	"SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off"

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
	pc.CustomData()[prepared] = map[string]*pgconn.StatementDescription{}
	return nil
}

// prepareOn is the prepared form of the statement on a connection; nil where it is sent
// as text.
func (st *statement) prepareOn(ctx context.Context, conn *pgconn.PgConn) (*pgconn.StatementDescription, error) {
	done, direct := conn.CustomData()[prepared].(map[string]*pgconn.StatementDescription)
	if !direct || !st.often {
		return nil, nil
	}
	sd, ok := done[st.sql.direct]
	if !ok {
		var err error
		if sd, err = conn.Prepare(ctx, "semel_"+strconv.Itoa(len(done)), st.sql.direct, st.oids); err != nil {
			return nil, err
		}
		done[st.sql.direct] = sd
	}
	return sd, nil
}

// add adds a statement to a batch.
func (st *statement) add(ctx context.Context, conn *pgconn.PgConn, b *pgconn.Batch) error {
	sd, err := st.prepareOn(ctx, conn)
	switch {
	case err != nil:
		return err
	case sd != nil:
		b.ExecStatement(sd, st.values, binaryFormat, binaryFormat)
	default:
		b.ExecParams(st.sql.any, st.values, st.oids, binaryFormat, binaryFormat)
	}
	return nil
}

// send sends a statement by itself, which takes less than a batch of one.
func (st *statement) send(ctx context.Context, conn *pgconn.PgConn) (*pgconn.ResultReader, error) {
	sd, err := st.prepareOn(ctx, conn)
	switch {
	case err != nil:
		return nil, err
	case sd != nil:
		makeRoom(conn, st.values)
		return conn.ExecStatement(ctx, sd, st.values, binaryFormat, binaryFormat), nil
	default:
		return conn.ExecParams(ctx, st.sql.any, st.values, st.oids, binaryFormat, binaryFormat), nil
	}
}

// stale reports that a prepared statement is gone or no longer fits the table. The
// connection is of no further use.
func stale(pe *pgconn.PgError) bool { return pe.Code == "26000" || pe.Code == "0A000" }
