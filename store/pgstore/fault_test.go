package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// traffic delivers calls, each several times, through engines on stores of one
// database, until each has its outcome, and checks the history.
type traffic struct {
	engines []*semel.Engine
	failed  atomic.Int64 // calls to the stores
	acked   atomic.Int64

	mu       sync.Mutex
	executed map[string]int
	results  map[string]string
	grew     *sync.Cond
}

func newTraffic(t *testing.T, stores ...*Store) *traffic {
	t.Helper()
	tr := &traffic{executed: map[string]int{}, results: map[string]string{}}
	tr.grew = sync.NewCond(&tr.mu)
	for _, s := range stores {
		e, err := semel.New(s, &semel.Options{
			Operations: []semel.Operation{{Name: "charge"}},
			Events:     &semel.Events{StoreFailed: func(semel.StoreFailed) { tr.failed.Add(1) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		tr.engines = append(tr.engines, e)
	}
	return tr
}

// run has clients deliver calls, every key by each of two clients on two engines,
// and returns when all have their outcome.
func (tr *traffic) run(t *testing.T, clients, keys int) {
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for k := range keys {
				tr.deliver(t, (c/2+c)%len(tr.engines), fmt.Sprintf("%d-%d", c/2, k))
			}
		})
	}
	wg.Wait()
}

// deliver delivers a call until it has an outcome.
func (tr *traffic) deliver(t *testing.T, engine int, key string) {
	e := tr.engines[engine]
	call := semel.Call{Tenant: "t", Principal: "p", Operation: "charge", Key: key, Wait: time.Second, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key))}
	for t.Context().Err() == nil {
		ans, err := e.Begin(t.Context(), call)
		switch {
		case err != nil: // unknown: deliver it once more
		case ans.Decision == semel.Execute:
			tr.execute(t, ans.Attempt, key)
			return
		case ans.Decision == semel.Replay:
			tr.outcome(t, key, string(ans.Record.Result.Data))
			return
		case ans.Decision != semel.InFlight:
			t.Errorf("a delivery of %s got %s", key, ans.Decision)
			return
		}
	}
}

func (tr *traffic) execute(t *testing.T, a *semel.Attempt, key string) {
	tr.mu.Lock()
	tr.executed[key]++
	result := fmt.Sprintf("%s by execution %d under fence %d", key, tr.executed[key], a.Fence())
	tr.mu.Unlock()
	for {
		err := a.Complete(t.Context(), semel.Result{Data: []byte(result)})
		if err == nil {
			tr.outcome(t, key, result)
			return
		}
		if !errors.Is(err, semel.ErrUnknown) {
			t.Errorf("Complete of %s: %v", key, err)
			return
		}
	}
}

// outcome takes note of what a caller was told.
func (tr *traffic) outcome(t *testing.T, key, result string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if was, ok := tr.results[key]; ok && was != result {
		t.Errorf("callers were told of two outcomes of %s: %q and %q", key, was, result)
	}
	tr.results[key] = result
	tr.acked.Add(1)
	tr.grew.Broadcast()
}

// reach waits until so many deliveries have their outcome.
func (tr *traffic) reach(n int64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for tr.acked.Load() < n {
		tr.grew.Wait()
	}
}

// check holds what is stored against what callers were told.
func (tr *traffic) check(t *testing.T, s *Store, keys int) {
	t.Helper()
	if len(tr.results) != keys {
		t.Errorf("%d of %d calls have an outcome", len(tr.results), keys)
	}
	for key, result := range tr.results {
		rec, err := s.Get(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: "charge", Key: key})
		if err != nil || string(rec.Result.Data) != result {
			t.Errorf("a caller was told %q, and %q is stored, %v", result, rec.Result.Data, err)
		}
		if n := tr.executed[key]; n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
}

const (
	faultClients = 16
	faultKeys    = 150
	faultCalls   = faultClients / 2 * faultKeys
)

func TestFaults(t *testing.T) {
	t.Parallel()
	t.Run("sessions that are terminated under load lose nothing and execute nothing twice", func(t *testing.T) {
		a, database := open(t, Options{})
		server := pgtest.Shared(t)
		b := mustOpen(t, server.URL(database), nil)
		t.Cleanup(func() { mustClose(t, b) })
		tr := newTraffic(t, a, b)
		conn := server.Conn(t, database)
		var wg sync.WaitGroup
		wg.Go(func() { tr.run(t, faultClients, faultKeys) })
		terminated := 0
		for n := range int64(20) {
			tr.reach((n + 1) * 2 * faultCalls / 25)
			var ended int
			err := conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, database).Scan(&ended)
			if err != nil {
				t.Fatal(err)
			}
			terminated += ended
		}
		wg.Wait()
		tr.check(t, a, faultCalls)
		t.Logf("fired: %d sessions terminated, %d calls to the store failed", terminated, tr.failed.Load())
		if terminated == 0 || tr.failed.Load() == 0 {
			t.Error("no fault fired, so nothing is proved")
		}
	})
	t.Run("a server that is killed under load and restarted has lost nothing", func(t *testing.T) {
		clause.Proves(t, "ON-POSTGRES", "G-DURABLE")
		server := pgtest.Start(t, nil)
		database := server.Database(t)
		a := mustOpen(t, server.URL(database), &Options{Migrate: true})
		t.Cleanup(func() { mustClose(t, a) })
		b := mustOpen(t, server.URL(database), nil)
		t.Cleanup(func() { mustClose(t, b) })
		if d, err := a.Durability(t.Context()); err != nil || d.Level != store.LevelDisk {
			t.Errorf("the level is %s, %v", d.Level, err)
		}
		tr := newTraffic(t, a, b)
		var wg sync.WaitGroup
		wg.Go(func() { tr.run(t, faultClients, faultKeys) })
		const kills = 4
		for n := range int64(kills) {
			tr.reach((n + 1) * 2 * faultCalls / (kills + 1))
			server.Kill()
			server.Restart()
		}
		wg.Wait()
		tr.check(t, a, faultCalls)
		t.Logf("fired: %d kills, %d calls to the store failed", kills, tr.failed.Load())
		if tr.failed.Load() == 0 {
			t.Error("no call failed, so nothing is proved")
		}
	})
	t.Run("a commit that is cancelled while a standby is away is unknown, and nobody acts on what it left", cancelledCommit)
}

// cancelledCommit makes a row that the primary shows and no standby has.
func cancelledCommit(t *testing.T) {
	primary := pgtest.Start(t, nil)
	database := primary.Database(t)
	standby := primary.Standby(t, "one")
	primary.Exec(t, database, "ALTER SYSTEM SET synchronous_standby_names = 'one'")
	primary.Exec(t, database, "SELECT pg_reload_conf()")
	primary.Await(t, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
	s := mustOpen(t, primary.URL(database), &Options{Migrate: true, MaxConns: 4})
	t.Cleanup(func() { mustClose(t, s) })
	if d, err := s.Durability(t.Context()); err != nil || d.Level != store.LevelReplicated {
		t.Fatalf("the level is %s, %v", d.Level, err)
	}
	kept := put(t, s, numbered("kept", 1), store.Revision{})
	duplicates := mustOpen(t, primary.URL(database), nil)
	t.Cleanup(func() { mustClose(t, duplicates) })
	duplicates.meets.Store(true) // so its next statement returns what stands in the way
	standby.Stop()

	lost := numbered("lost", 1)
	told := make(chan error)
	go func() {
		_, applied, err := s.Apply(t.Context(), store.Write{Record: new(lost), Evidence: leaves("lost")})
		if applied {
			t.Error("a write that no standby has was acknowledged")
		}
		told <- err
	}()
	const waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	primary.Await(t, "SELECT count(*) = 1 "+waits)
	var cancelled int
	conn := primary.Conn(t, database)
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) "+waits).Scan(&cancelled); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil {
		t.Error("a commit whose wait was cancelled was reported as applied")
	} else {
		t.Logf("the caller was told: %v", err)
	}
	id := lost.ID.Digest()
	var visible int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM semel.semel_records WHERE id = $1", id[:]).Scan(&visible); err != nil || visible != 1 {
		t.Fatalf("the primary shows %d rows, %v: nothing is proved", visible, err)
	}
	// Its entry has a number, by one whose commit was cancelled too.
	_, err := conn.PgConn().Exec(t.Context(), `SET synchronous_commit = local;
		WITH fresh AS (DELETE FROM semel.semel_evidence_new RETURNING subject, leaf, opening)
		INSERT INTO semel.semel_evidence SELECT 0, subject, leaf, opening FROM fresh`).ReadAll()
	noError(t, err)
	// All that would act on the row wait for a standby.
	for what, call := range map[string]func(ctx context.Context) error{
		"the same write": func(ctx context.Context) error { _, _, err := s.Apply(ctx, store.Write{Record: new(lost)}); return err },
		"another's claim": func(ctx context.Context) error {
			_, _, err := s.Apply(ctx, store.Write{Record: new(numbered("lost", 2))})
			return err
		},
		"a claim after duplicates": func(ctx context.Context) error {
			_, _, err := duplicates.Apply(ctx, store.Write{Record: new(numbered("lost", 3))})
			return err
		},
		"Get": func(ctx context.Context) error { _, err := s.Get(ctx, lost.ID); return err },
		"ReadEvidence": func(ctx context.Context) error {
			_, err := s.ReadEvidence(ctx, 0, 1)
			return err
		},
		"FindEvidence": func(ctx context.Context) error {
			_, err := s.FindEvidence(ctx, store.Subject{1}, 0, 1)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		if err := call(ctx); err == nil {
			t.Errorf("%s got an answer from a row that no standby has", what)
		}
		cancel()
	}
	_ = conn.Close(t.Context())
	primary.Kill()
	standby.Restart()
	standby.Promote(t)
	after := mustOpen(t, standby.URL(database), nil)
	t.Cleanup(func() { mustClose(t, after) })
	if rec, err := after.Get(t.Context(), kept.ID); err != nil || rec.Revision != kept.Revision {
		t.Errorf("what was acknowledged is lost: %v", err)
	}
	if _, err := after.Get(t.Context(), lost.ID); !errors.Is(err, semel.ErrNotFound) {
		t.Errorf("the row is on the standby (%v): nothing is proved", err)
	}
	wantLog(t, after)
	put(t, after, numbered("lost", 2), store.Revision{})
	t.Logf("fired: %d commits cancelled, 1 primary killed, 1 standby promoted", cancelled)
	if cancelled != 1 {
		t.Error("no fault fired, so nothing is proved")
	}
}

func TestNodes(t *testing.T) {
	t.Run("a change by one store wakes who waits at another", func(t *testing.T) {
		a, database := open(t, Options{})
		b := mustOpen(t, pgtest.Shared(t).URL(database), nil)
		t.Cleanup(func() { mustClose(t, b) })
		await(t, "both listen", func() bool { return listeners(t, database) == 2 })
		rec := put(t, a, numbered("k", 1), store.Revision{})
		wantNotice(t, a, b, rec)
	})
	t.Run("who is alone tells nobody, and notices when somebody else listens", func(t *testing.T) {
		server := pgtest.Shared(t)
		database := server.Database(t)
		w := newWire(t, server)
		a := mustOpen(t, w.url(database), &Options{Migrate: true, AcquireTimeout: 10 * time.Second})
		t.Cleanup(func() { mustClose(t, a) })
		var notices atomic.Int64
		w.set(func(x *exchange) {
			if strings.Contains(strings.Join(x.sql, ";"), "pg_notify") {
				notices.Add(1)
			}
		})
		n := 0
		change := func() semel.Record {
			n++
			return put(t, a, numbered(fmt.Sprint("k", n), 1), store.Revision{})
		}
		isAlone := func() bool { change(); return a.alone.Load() }
		// Once it listens itself, it tells others and looks again. On a busy machine that is late.
		await(t, "it tells nobody of twenty changes", func() bool {
			await(t, "it knows that it is alone", isAlone)
			notices.Store(0)
			for range 20 {
				change()
			}
			await(t, "it is done with all changes", func() bool { return len(a.changes) == 0 })
			return notices.Load() == 0
		})
		b := mustOpen(t, server.URL(database), nil)
		await(t, "it hears of the other one", func() bool { return !a.alone.Load() })
		rec := change()
		changed, stop := b.Watch(t.Context(), rec.ID)
		put(t, a, numbered(rec.ID.Key, 2), rec.Revision)
		<-changed
		stop()
		mustClose(t, b)
		await(t, "it knows that it is alone again", isAlone)
	})
	t.Run("more changes than a notice can name wake everybody", func(t *testing.T) {
		a, database := open(t, Options{})
		b := mustOpen(t, pgtest.Shared(t).URL(database), nil)
		t.Cleanup(func() { mustClose(t, b) })
		await(t, "both listen", func() bool { return listeners(t, database) == 2 })
		wantNotice(t, a, b, put(t, a, numbered("k", 1), store.Revision{})) // and with it all of the beginning
		changed, stop := b.Watch(t.Context(), numbered("unchanged", 1).ID)
		defer stop()
		drain(changed)
		await(t, "everybody is told", func() bool {
			for n := range 10 * maxNamed {
				a.changed(&digest{byte(n), byte(n >> 8), 1})
			}
			select {
			case <-changed:
				return true
			default:
				return false
			}
		})
	})
	t.Run("a listener that lost its connection comes back and tells everybody", func(t *testing.T) {
		a, database := open(t, Options{})
		await(t, "it listens", func() bool { return listeners(t, database) == 1 })
		changed, stop := a.Watch(t.Context(), numbered("k", 1).ID)
		defer stop()
		drain(changed)
		pgtest.Shared(t).Exec(t, database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
		<-changed
		await(t, "it listens again", func() bool { return listeners(t, database) == 1 })
	})
}

// wantNotice checks that a change of a record by one store is told to another.
func wantNotice(t *testing.T, by, to *Store, rec semel.Record) {
	t.Helper()
	changed, stop := to.Watch(t.Context(), rec.ID)
	defer stop()
	drain(changed)
	put(t, by, numbered("k", 2), rec.Revision)
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("no notice came")
	}
}

// listeners is how many sessions of a database listen.
func listeners(t *testing.T, database string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND datname = current_database()").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func drain(ch <-chan struct{}) {
	select {
	case <-ch:
	default:
	}
}
