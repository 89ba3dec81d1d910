package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// New opens a store in the database that an application has a pool for already: by
// the same addresses, credentials and TLS, and with the pool's BeforeConnect, which
// may bring a password that changes. Otherwise it is [Open].
//
// The store has a few connections of its own beside those of the pool: up to
// Options.MaxConns for writes, [ReadConns] for reads, and one for notices. It does not
// borrow the pool's. While handlers hold all of those, each waiting for its outcome to
// be recorded, nothing could be; and what the store sets for its sessions, and how it
// lets a commit go on that nobody waits for any more, is not for statements of others.
// The pool stays the application's and is not closed with the store.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	config := pool.Config()
	own, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	own.ConnConfig, own.BeforeConnect = config.ConnConfig, config.BeforeConnect
	own.MaxConnLifetime, own.MaxConnLifetimeJitter, own.MaxConnIdleTime = config.MaxConnLifetime, config.MaxConnLifetimeJitter, config.MaxConnIdleTime
	bare(own.ConnConfig)
	return openAt(ctx, own, opts)
}

// bare takes away what an application has set for its own statements. A limit of time
// would call back commits that wait for a standby.
func bare(config *pgx.ConnConfig) {
	config.Tracer = nil
	params := map[string]string{}
	for _, name := range []string{"application_name", "options"} {
		if v, ok := config.RuntimeParams[name]; ok {
			params[name] = v
		}
	}
	config.RuntimeParams = params
}
