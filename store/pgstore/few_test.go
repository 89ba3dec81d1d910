package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// A store that may have few connections serves all that it serves with many, if slower: by a
// bound in the URL, or by the server's for the role. Nobody waits for a connection in a circle.
func TestFewConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	for n := 2; n <= 5; n++ {
		for _, by := range []string{"the URL", "the role"} {
			t.Run(fmt.Sprintf("%d by %s", n, by), func(t *testing.T) {
				t.Parallel()
				database := server.Database(t)
				role, url := fmt.Sprintf("few_%d_%d", n, len(by)), server.URL(database)
				server.Exec(t, "postgres", fmt.Sprintf("CREATE ROLE %s LOGIN", role))
				server.Exec(t, "postgres", fmt.Sprintf("ALTER DATABASE %q OWNER TO %s", database, role))
				server.Exec(t, database, fmt.Sprintf("GRANT CREATE ON DATABASE %q TO %s", database, role))
				if by == "the URL" {
					url += fmt.Sprintf("&pool_max_conns=%d", n)
				}
				server.Exec(t, "postgres", fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", role, n))
				s := mustOpen(t, strings.Replace(url, "postgres@", role+"@", 1), &Options{Migrate: true, AcquireTimeout: time.Minute})
				var work sync.WaitGroup
				for c := range 32 {
					work.Go(func() { few(t, s, fmt.Sprint(c)) })
				}
				work.Wait()
			})
		}
	}
	if _, err := Open(t.Context(), server.URL("postgres")+"&pool_max_conns=1", nil); err == nil || !strings.Contains(err.Error(), "at least 2") {
		t.Errorf("with one connection: %v", err)
	}
}

// few is what one caller does, each time within an engine's patience.
func few(t *testing.T, s *Store, key string) {
	for i := range 5 {
		rec := numbered(fmt.Sprint(key, ".", i), 1)
		for name, ask := range map[string]func(ctx context.Context) error{
			"Apply": func(ctx context.Context) error {
				_, _, err := s.Apply(ctx, store.Write{Record: new(rec)})
				return err
			},
			"Get": func(ctx context.Context) error {
				_, err := s.Get(ctx, semel.ID{Operation: "none", Key: key})
				if errors.Is(err, semel.ErrNotFound) {
					return nil
				}
				return err
			},
			"Search": func(ctx context.Context) error {
				_, err := s.Search(ctx, store.Query{Limit: 1})
				return err
			},
			"CheckWrites": s.CheckWrites,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := ask(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	}
}
