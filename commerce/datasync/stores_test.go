package datasync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the engine's warning that nobody sweeps
	os.Exit(pgtest.Main(m))
}

// TestDispatchersDeliver syncs a side on the embedded store with one on PostgreSQL, by
// their dispatchers, with two nodes each.
func TestDispatchersDeliver(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.1", "MAP-SYNC.4")
	embedded, err := pebblestore.Open(t.TempDir(), nil)
	must(t, err)
	server := pgtest.Shared(t)
	pg, err := pgstore.Open(t.Context(), server.URL(server.Database(t)), &pgstore.Options{Migrate: true})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		for _, st := range []semel.Store{embedded, pg} {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	const versions = 20
	var mu sync.Mutex
	others := map[string]*datasync.Replica{}
	sends, rows := map[string]int{}, map[string]datasync.State{}
	done := make(chan string, 2)      // sides whose database has the last version
	changed := make(chan struct{}, 1) // some database has changed
	node := func(st semel.Store, origin, other string) *datasync.Replica {
		e, err := semel.New(st, nil)
		must(t, err)
		r, err := datasync.New(e, datasync.Options{
			Origin: origin,
			Apply: func(_ context.Context, s datasync.State) error {
				mu.Lock()
				defer mu.Unlock()
				if rows[origin].Sequence < s.Sequence {
					if rows[origin] = s; s.Version == versions {
						done <- origin
					}
				}
				select {
				case changed <- struct{}{}:
				default:
				}
				return nil
			},
			Send: func(ctx context.Context, c datasync.Change) error {
				mu.Lock()
				sends[c.Key()]++
				to := others[other]
				mu.Unlock()
				_, err := to.Receive(ctx, c)
				return err
			},
		})
		must(t, err)
		d, err := dispatch.New(e, dispatch.Options{Interval: 10 * time.Millisecond, Destinations: map[string]dispatch.Destination{
			r.Destination(): {Sender: dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error { return r.Work(ctx, d.Message.Payload) })},
		}})
		must(t, err)
		running.Go(func() { _ = d.Run(ctx) })
		return r
	}
	a, b := node(embedded, "semel", "shopify"), node(pg, "shopify", "semel")
	mu.Lock()
	others["semel"], others["shopify"] = node(embedded, "semel", "shopify"), node(pg, "shopify", "semel")
	mu.Unlock()
	for version := int64(1); version <= versions; version++ {
		from, content := []*datasync.Replica{a, b}[version%2], fmt.Appendf(nil, "%d", version)
		for {
			_, err := from.Put(t.Context(), user("u"), version, content)
			if err == nil {
				break
			}
			if !errors.Is(err, datasync.ErrVersion) {
				t.Fatal(err)
			}
			<-changed // until the other side's version has arrived
		}
	}
	for range 2 {
		<-done
	}
	mu.Lock()
	defer mu.Unlock()
	for _, origin := range []string{"semel", "shopify"} {
		if got := contents(rows[origin].Changes); got != fmt.Sprint(versions) {
			t.Errorf("%s has %s", origin, got)
		}
	}
	if len(sends) > versions {
		t.Errorf("%d changes were sent: %v", len(sends), sends)
	}
}
