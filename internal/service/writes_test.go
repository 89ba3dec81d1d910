package service_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// A server that answers reads and refuses writes should get no calls.
func TestANodeWhoseStoreIsReadOnlyIsNotReady(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, nil)
	database := pg.Database(t)
	setReadOnly := func(value string) func() {
		return func() {
			pg.Exec(t, "postgres", "ALTER SYSTEM SET default_transaction_read_only = "+value)
			pg.Exec(t, "postgres", "SELECT pg_reload_conf()")
		}
	}
	redis := redistest.Start(t, "")
	for name, c := range map[string]struct {
		store          string
		refuse, accept func()
	}{
		"PostgreSQL": {`{url: "` + pg.URL(database) + `", migrate: true}`, setReadOnly("on"), setReadOnly("off")},
		"Redis": {
			`{url: "` + redis.URL() + `"}`,
			func() { redis.Do("REPLICAOF", "127.0.0.1", "1") }, func() { redis.Do("REPLICAOF", "NO", "ONE") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, "store: "+c.store+"\n"))
			isReady := func(want int) func() error {
				return func() error {
					if status, _, text := do(t, "GET", s.admin("/readyz?verbose"), ""); status != want {
						return fmt.Errorf("readyz is %d: %s", status, text)
					}
					return nil
				}
			}
			logged := func(text string) func() error {
				return func() error {
					if !strings.Contains(s.log.String(), text) {
						return fmt.Errorf("the log has no %q", text)
					}
					return nil
				}
			}
			servertest.Eventually(t, "the node is ready", isReady(200))
			c.refuse()
			t.Cleanup(c.accept)
			servertest.Eventually(t, "the node is not ready", isReady(503))
			servertest.Eventually(t, "the log says so", logged("the store accepts no writes"))
			c.accept()
			servertest.Eventually(t, "the node is ready again", isReady(200))
			servertest.Eventually(t, "the log says that, too", logged("the store accepts writes again"))
		})
	}
}

// A server that answers reads and no write should get no calls either: callers would wait for
// nothing. A standby that is away does that to PostgreSQL.
func TestANodeWhoseWritesHangIsNotReady(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, nil)
	database := pg.Database(t)
	standby := func(name string) {
		pg.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'")
		pg.Exec(t, "postgres", "SELECT pg_reload_conf()")
	}
	redis := redistest.Start(t, "")
	for name, c := range map[string]struct {
		store      string
		hang, goOn func()
	}{
		"PostgreSQL": {`{url: "` + pg.URL(database) + `", migrate: true}`, func() { standby("nobody") }, func() { standby("") }},
		"Redis": {
			`{url: "` + redis.URL() + `"}`,
			func() { redis.Do("CLIENT", "PAUSE", "600000", "WRITE") }, func() { redis.Do("CLIENT", "UNPAUSE") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, "store: "+c.store+"\noperations: [{name: op}]\n"))
			ready := func(want int, says string) func() error {
				return func() error {
					if status, _, text := do(t, "GET", s.admin("/readyz?verbose"), ""); status != want || !strings.Contains(text, says) {
						return fmt.Errorf("readyz is %d: %s", status, text)
					}
					return nil
				}
			}
			servertest.Eventually(t, "the node is ready", ready(200, "[+] writes"))
			c.hang()
			var work sync.WaitGroup
			defer work.Wait()
			defer c.goOn()
			stop := make(chan struct{})
			defer close(stop)
			for n := range 4 { // callers come all the time
				work.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
							_, _, _ = do(t, "POST", s.data("/v1/operations/op/executions"), fmt.Sprintf(`{"key":"k-%d-%d"}`, n, i))
						}
					}
				})
			}
			servertest.Eventually(t, "the node is not ready", ready(503, ": the store has answered no write"))
			c.goOn()
			servertest.Eventually(t, "the node is ready again", ready(200, "[+] writes"))
		})
	}
}
