package pgstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// silencePeriod is how often the server is asked about connections that have not
// answered. One that it knows nothing of is given up after two to three periods.
const silencePeriod = 5 * time.Second

// connectLimit is how long connecting may take, and preparing the connection. All
// that wait for one get none meanwhile.
const connectLimit = 5 * time.Second

// silence gives up connections whose answer will never come.
//
// No statement is called back, so nothing else ends a call over a connection of
// which only this side is left. TCP notices a peer that is gone. It does not notice
// one that lost its own way to the server, as a proxy or a firewall between the two
// that acknowledges what it has nowhere to send. A time limit would be wrong: a
// commit that waits for a standby is silent for as long as that is away, and ending
// it leaves a row that no standby has. So the server itself is asked, over a new
// connection: a session that works on something, or waits for a standby, is left
// alone. One that is gone, or idle, has answered or was never asked, and its answer
// is lost. Its calls end with an error, so their result is unknown and is resolved
// as ever, over another connection.
//
// Only sessions that the server knows by their number can be asked for. A
// transaction pooler is trusted to give up sessions of its own.
type silence struct {
	period time.Duration
	limit  time.Duration                                // for one question
	before func(context.Context, *pgx.ConnConfig) error // of the pools; may be nil
	// connect makes the connection that asks.
	connect func(context.Context) (*pgx.Conn, error)

	mu   sync.Mutex
	busy map[*pgx.Conn]*quiet
}

// quiet is a connection in use.
type quiet struct {
	looks int  // since it was taken
	asked int  // how often the server has said whether it works on something
	lost  bool // it did not when it was asked last
}

// watchedBy is where a direct connection notes the silence that watches it.
const watchedBy = "semel.silence"

// watch has the connections of a pool watched while they are in use, that is from
// acquire to release. Hooks of the pool would say so, too; but it calls the one for
// a release in a goroutine, and until that has run the connection is not free, so a
// caller that is alone would wait for a second one. Watch is called before the pool
// is made, and after its other hooks are set.
func (s *silence) watch(config *pgxpool.Config) {
	connected := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if connected != nil {
			if err := connected(ctx, conn); err != nil {
				return err
			}
		}
		if data := conn.PgConn().CustomData(); data[prepared] != nil {
			data[watchedBy] = s
		}
		return nil
	}
	config.BeforeClose = s.free
}

// watcherOf is what watches a connection; nil where nothing does.
func watcherOf(conn *pgx.Conn) *silence {
	s, _ := conn.PgConn().CustomData()[watchedBy].(*silence)
	return s
}

func (s *silence) take(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[conn] = new(quiet)
}

func (s *silence) free(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, conn)
}

// within bounds how long a new connection is prepared.
func within(d time.Duration, prepare func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return prepare(ctx, conn)
	}
}

// run looks until ctx is done.
func (s *silence) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(s.period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if silent := s.silent(); len(silent) > 0 {
			working, err := s.ask(ctx, silent)
			if err != nil {
				continue // nothing is known, so nothing is given up
			}
			if n := s.giveUp(silent, working); n > 0 {
				log.Warn("the server has answered, and the answer was lost: connections are given up", slog.Int("connections", n))
			}
		}
	}
}

// silent are the connections that have been in use for a whole period.
func (s *silence) silent() map[*pgx.Conn]*quiet {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := map[*pgx.Conn]*quiet{}
	for conn, q := range s.busy {
		if q.looks++; q.looks > 1 {
			silent[conn] = q
		}
	}
	return silent
}

// ask says which of the connections the server is working for.
func (s *silence) ask(ctx context.Context, silent map[*pgx.Conn]*quiet) (working map[uint32]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	pids := make([]int32, 0, len(silent))
	for c := range silent {
		pids = append(pids, int32(c.PgConn().PID()))
	}
	// A session that reads from its client, or writes to it, works on nothing.
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[])"+
		" AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'", pids)
	if err != nil {
		return nil, err
	}
	working = map[uint32]bool{}
	var pid int32
	_, err = pgx.ForEachRow(rows, []any{&pid}, func() error {
		working[uint32(pid)] = true
		return nil
	})
	return working, err
}

// giveUp closes the connections that have lost their answer, and counts them. It
// takes two looks, for an answer may be on its way at the first.
func (s *silence) giveUp(silent map[*pgx.Conn]*quiet, working map[uint32]bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, q := range silent {
		if s.busy[conn] != q {
			continue // it has answered meanwhile
		}
		q.asked++
		was := q.lost
		q.lost = !working[conn.PgConn().PID()]
		if was && q.lost {
			// Whoever reads from it gets an error, and gives it back as broken.
			_ = conn.PgConn().Conn().Close()
			n++
		}
	}
	return n
}
