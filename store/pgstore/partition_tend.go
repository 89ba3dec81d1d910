package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// tendPeriod is how often a store looks after the partitions.
const tendPeriod = time.Minute

// tendRows bounds how many results without a partition are deleted at a time.
const tendRows = 5000

// keepPartitions looks after the partitions until ctx is done.
func (s *Store) keepPartitions(ctx context.Context) {
	tick := time.NewTicker(min(tendPeriod, s.period/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.tendPartitions(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("the partitions were not looked after: they are once more", slog.Any("error", err))
		}
	}
}

// tendPartitions makes the partitions that will be needed and drops those that no
// record refers to any more. Nothing depends on its being done: a result without
// a partition is kept in the default one, and an old partition is only space. Of
// several stores one does it at a time.
func (s *Store) tendPartitions(ctx context.Context) error {
	s.tending.Lock()
	defer s.tending.Unlock()
	conn, err := acquire(ctx, s.reads, s.opts.AcquireTimeout)
	if err != nil {
		return err
	}
	defer release(conn)
	t := tender{conn: conn.Conn(), schema: s.opts.Schema, period: int64(s.period / time.Second)}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	t.current = int64(now) / int64(s.period)
	have, err := t.list(ctx)
	if err != nil {
		return err
	}
	need, err := t.needed(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for b := t.current; b <= need; b++ {
		if _, ok := have[b]; !ok {
			errs = append(errs, t.make(ctx, b))
		}
	}
	for b, attached := range have {
		if b < t.current {
			errs = append(errs, t.retire(ctx, b, attached))
		}
	}
	return errors.Join(append(errs, t.sweepOther(ctx))...)
}

// tender looks after the partitions once.
type tender struct {
	conn    *pgx.Conn
	schema  string
	period  int64 // seconds
	current int64 // the period that is on
}

func (t *tender) table(bucket int64) string { return name(t.schema, partitionName(bucket)) }

func partitionName(bucket int64) string { return fmt.Sprintf("%s_%d", resultTable, bucket) }

// list are the tables of partitions that there are, and whether each is attached.
func (t *tender) list(ctx context.Context) (map[int64]bool, error) {
	rows, err := t.conn.Query(ctx, "SELECT relname::text, relispartition FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind = 'r' AND starts_with(relname, $2::text)",
		quote(t.schema), resultTable+"_")
	if err != nil {
		return nil, err
	}
	have := map[int64]bool{}
	var table string
	var attached bool
	_, err = pgx.ForEachRow(rows, []any{&table, &attached}, func() error {
		if b, err := strconv.ParseInt(strings.TrimPrefix(table, resultTable+"_"), 10, 64); err == nil {
			have[b] = attached
		}
		return nil
	})
	return have, err
}

// needed is the last period that needs a partition: the one after the last in which
// a record expires, for those written soon will expire a little later.
func (t *tender) needed(ctx context.Context) (int64, error) {
	var last *int64
	err := t.conn.QueryRow(ctx, fmt.Sprintf("SELECT floor(date_part('epoch', max(expires_at)) / %d)::bigint FROM %s WHERE expires_at < to_timestamp($1::bigint)",
		t.period, name(t.schema, "idempotency_log")), (t.current+aheadPartitions)*t.period).Scan(&last)
	need := t.current + 1
	if last != nil {
		need = max(need, *last+1)
	}
	return need, err
}

// alone runs f in a transaction in which no other store looks after partitions, and
// reports whether it ran.
func (t *tender) alone(ctx context.Context, f func(tx pgx.Tx) error) (ran bool, err error) {
	// Each statement is to see what was committed before it, whatever the default is.
	err = pgx.BeginTxFunc(ctx, t.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) FROM set_config('lock_timeout', '100ms', true)", "semel partitions "+t.schema).Scan(&ran)
		if err != nil || !ran {
			return err
		}
		return f(tx)
	})
	switch sqlState(err) {
	case "55P03", "42P07": // the lock was not free; another has made the partition
		return false, nil
	}
	return ran && err == nil, err
}

// locked is alone where nobody uses results meanwhile. It waits for that for a short
// time only, since all others wait behind it.
func (t *tender) locked(ctx context.Context, f func(tx pgx.Tx) error) (ran bool, err error) {
	return t.alone(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "LOCK TABLE "+name(t.schema, resultTable)+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		return f(tx)
	})
}

// make makes a partition, and moves results into it that came before.
func (t *tender) make(ctx context.Context, bucket int64) error {
	// A crash before the commit leaves nothing of it.
	_, err := t.locked(ctx, func(tx pgx.Tx) error {
		results, other, part := name(t.schema, resultTable), name(t.schema, resultTable+"_other"), t.table(bucket)
		for _, sql := range []string{
			"CREATE TABLE " + part + " (LIKE " + results + ")",
			fmt.Sprintf("WITH moved AS (DELETE FROM %s WHERE bucket = %d RETURNING *) INSERT INTO %s SELECT * FROM moved", other, bucket, part),
			fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", results, part, bucket, bucket+1),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// retire drops a partition whose period is over, if no record refers to it. It is
// detached first, for that takes a moment only; to remove its files may take
// longer, and nobody waits for that.
func (t *tender) retire(ctx context.Context, bucket int64, attached bool) error {
	if attached {
		free := false
		// A crash before the commit leaves the partition as it was. A crash after
		// it leaves a table by itself, which is found again and dropped. What is
		// looked for is looked for under the lock, so no record comes to refer to
		// the partition meanwhile.
		ran, err := t.locked(ctx, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, fmt.Sprintf("SELECT NOT EXISTS (SELECT FROM %s WHERE expires_at < to_timestamp($1::bigint) AND result_bucket = $2::bigint)",
				name(t.schema, "idempotency_log")), (bucket+1)*t.period, bucket).Scan(&free)
			if err != nil || !free {
				return err
			}
			_, err = tx.Exec(ctx, "ALTER TABLE "+name(t.schema, resultTable)+" DETACH PARTITION "+t.table(bucket))
			return err
		})
		if err != nil || !ran || !free {
			return err
		}
	}
	// A crash before the commit leaves the table to be found again. It is dropped
	// only while it is by itself: another store, whose clock is behind, may have
	// dropped it and made the partition anew.
	_, err := t.alone(ctx, func(tx pgx.Tx) error {
		var byItself bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass($1::text) AND NOT relispartition)", t.table(bucket)).Scan(&byItself)
		if err == nil && byItself {
			_, err = tx.Exec(ctx, "DROP TABLE "+t.table(bucket))
		}
		return err
	})
	return err
}

// sweepOther deletes results that have no partition, where no record has them.
func (t *tender) sweepOther(ctx context.Context) error {
	other := name(t.schema, resultTable+"_other")
	// A crash before the commit leaves them to be found again.
	_, err := t.conn.Exec(ctx, fmt.Sprintf("DELETE FROM %s r WHERE r.ctid = ANY(ARRAY(SELECT o.ctid FROM %s o WHERE o.bucket < %d AND NOT EXISTS"+
		" (SELECT FROM %s l WHERE l.id = o.id AND l.revision = o.revision) LIMIT %d))", other, other, t.current, name(t.schema, "idempotency_log"), tendRows))
	return err
}
