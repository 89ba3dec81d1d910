//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// postgres is a server with the faults that are its own.
type postgres struct {
	*pgtest.Server
	ctx context.Context // outlasts the faults
}

const database = "chaos"

// groundPostgres is a store in PostgreSQL, which each node reaches over a separate network.
func groundPostgres(t *rig, o Options) *ground {
	options := &pgtest.Options{Settings: map[string]string{"superuser_reserved_connections": "5"}}
	s := newGround(t, o, func(env []string) { options.Env = env })
	p := &postgres{pgtest.Start(t, options), context.WithoutCancel(t.Context())}
	// Limits of connections don't bind a superuser, so the nodes connect as another user.
	p.Exec(t, "postgres", "CREATE ROLE semel LOGIN")
	p.Exec(t, "postgres", "CREATE DATABASE "+database+" OWNER semel")
	u, err := url.Parse(p.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	nets := netsTo(t, o.Nodes, "unix", u.Query().Get("host")+"/.s.PGSQL.5432")
	s.url = func(node int) string {
		return fmt.Sprintf("postgres://semel@%s/%s?sslmode=disable", nets[nodeName(node)].Addr(), database)
	}
	s.faults = slices.Concat(s.faults, linkFaults("store", nets), p.faults())
	s.network, s.stopToUpgrade = setAll(nets), true // a migration renames columns
	s.heal = func() error {
		s.network(faultnet.Healthy)
		return p.limit(-1)
	}
	return s
}

func (p *postgres) faults() []fault {
	on := func(name string, do func(s *injection) (int, error)) fault {
		return fault{name, []string{"server"}, do}
	}
	return []fault{
		on("server.kill", func(s *injection) (int, error) {
			return once(p.Process.Kill(), s.moment(), p.TryRestart())
		}),
		on("server.restart", func(s *injection) (int, error) {
			return once(p.End(p.Graceful), s.moment(), p.TryRestart())
		}),
		on("server.pause", func(s *injection) (int, error) { return s.paused(&p.Process) }),
		on("server.terminate", p.terminate),
		on("server.lock", p.lock),
		on("server.connections", func(s *injection) (int, error) {
			if err := p.limit(s.rng.IntN(3)); err != nil {
				return 0, err
			}
			hits, err := p.terminateAll()
			s.wait()
			return hits, errors.Join(err, p.limit(-1))
		}),
	}
}

// one runs a statement as the administrator.
func (p *postgres) one(ctx context.Context, sql string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(to)
}

const terminateAll = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'semel'`

func (p *postgres) terminateAll() (n int, err error) {
	err = p.one(p.ctx, terminateAll, &n)
	return n, err
}

// terminate ends sessions again and again.
func (p *postgres) terminate(s *injection) (int, error) {
	var errs []error
	hits := s.during(300*time.Millisecond, func() int {
		n, err := p.terminateAll()
		errs = append(errs, err)
		return n
	})
	return hits, errors.Join(errs...)
}

// limit bounds the connections of the nodes, for all of them together. Minus one is no
// limit.
func (p *postgres) limit(n int) error {
	return p.Try(p.ctx, "postgres", fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT %d", database, n))
}

// lock keeps everybody else from all tables of the store.
func (p *postgres) lock(s *injection) (hits int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recoveryTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL(database))
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE tableowner = 'semel'`)
	if err != nil {
		return 0, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	for _, table := range tables {
		if _, err := tx.Exec(ctx, "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return 0, err
		}
	}
	s.wait()
	return len(tables), tx.Rollback(ctx)
}
