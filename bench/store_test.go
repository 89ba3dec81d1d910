package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

type step = func(ctx context.Context, c *turns.Caller) error

// BenchmarkStore measures how many new keys the engine begins and completes on each store,
// which are two durable writes for each. A loop without an engine makes two writes of the
// same sizes under each key.
func BenchmarkStore(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) { beside(b, kind.place(b), nil) })
	}
	b.Run("pebble beside redis", func(b *testing.B) {
		dir := kinds[1].place(b)
		beside(b, dir, redisAt(b, redistest.Start(b, "always").URL()).bare)
	})
}

// beside compares the engine on a store with what has no engine there, or with bare.
func beside(b *testing.B, p place, bare func(b *testing.B, t *target) step) {
	t := newTarget(b, p.store(b, "ours"))
	loads := []turns.Load{{Name: "engine", Callers: *callers, Step: t.execute}}
	if bare == nil {
		bare = p.bare
	}
	if bare != nil {
		loads = append(loads, turns.Load{Name: "bare", Callers: *callers, Step: bare(b, t)})
	}
	turns.Compare(b, loads...)
}

// BenchmarkRecords measures replays of random records, new calls, and pages of searches and of
// due records on a store with many records, each with an attribute of its own, and on one with a
// hundredth of them.
func BenchmarkRecords(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			p := kind.place(b)
			large, small := newTarget(b, p.store(b, "large")), newTarget(b, p.store(b, "small"))
			p.fill(b, "large", large, *records)
			p.fill(b, "small", small, max(*records/100, 1))
			b.Run("replay", func(b *testing.B) {
				turns.Compare(b, turns.Load{Name: "large", Callers: *callers, Step: large.replay},
					turns.Load{Name: "small", Callers: *callers, Step: small.replay})
			})
			b.Run("execute", func(b *testing.B) {
				turns.Compare(b, turns.Load{Name: "large", Callers: *callers, Step: large.execute},
					turns.Load{Name: "small", Callers: *callers, Step: small.execute})
			})
			for _, page := range pages {
				b.Run(page.name, func(b *testing.B) {
					turns.Compare(b, turns.Load{Name: "large", Callers: 1, Step: page.step(b, large)},
						turns.Load{Name: "small", Callers: 1, Step: page.step(b, small)})
				})
			}
		})
	}
}

// target is an engine on the measured store.
type target struct {
	engine  *semel.Engine
	store   semel.Store
	result  []byte
	records int // known keys
}

const operation = "bench.charge"

func newTarget(b *testing.B, st semel.Store) *target {
	op := semel.Operation{Name: operation, MaxResult: max(*size, semel.DefaultMaxResult)}
	return &target{engine: engineOn(b, st, &semel.Options{Operations: []semel.Operation{op}}), store: st, result: outcome()}
}

// outcome has random bytes, so that compression doesn't help the store. The loop that it is
// compared with writes the same.
func outcome() []byte {
	data := make([]byte, *size)
	rand.Read(data)
	return data
}

var payload = semel.FingerprintOf(semel.SchemeRaw, []byte("bench"))

func call(key string) semel.Call {
	return semel.Call{Tenant: "bench", Principal: "load", Operation: operation, Key: key, Fingerprint: payload}
}

// execute begins and completes a new key.
func (t *target) execute(ctx context.Context, c *turns.Caller) error { return t.run(ctx, c.Key()) }

func (t *target) run(ctx context.Context, key string) error {
	ans, err := t.engine.Begin(ctx, call(key))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Execute {
		return fmt.Errorf("a new key got %s", ans.Decision)
	}
	return ans.Attempt.Complete(ctx, semel.Result{Data: t.result})
}

// replay begins a known key.
func (t *target) replay(ctx context.Context, c *turns.Caller) error {
	ans, err := t.engine.Begin(ctx, call(known(c.Rand.IntN(t.records))))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Replay || len(ans.Record.Result.Data) != len(t.result) {
		return fmt.Errorf("a known key got %s with %d bytes", ans.Decision, len(ans.Record.Result.Data))
	}
	return nil
}

// known is the i-th key of a filled store.
func known(i int) string { return "known-" + strconv.Itoa(i) }

// sample is a claim and its outcome, as the engine writes them to a store in memory.
func (t *target) sample(b *testing.B) (claim, outcome semel.Record) {
	st := memstore.New()
	defer st.Close()
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: operation, MaxResult: max(*size, semel.DefaultMaxResult)}}})
	if err != nil {
		b.Fatal(err)
	}
	ans, err := e.Begin(b.Context(), call("aaaaaaaa-10-100000"))
	if err != nil {
		b.Fatal(err)
	}
	claim = *ans.Record
	if err := ans.Attempt.Complete(b.Context(), semel.Result{Data: t.result}); err != nil {
		b.Fatal(err)
	}
	rec, err := st.Get(b.Context(), claim.ID)
	if err != nil {
		b.Fatal(err)
	}
	return claim, *rec
}

// fillers is how many goroutines write at the same time; they share the syncs.
const fillers = 1024

// fill writes n completed records, as if they had just been completed.
func (p *place) fill(b *testing.B, name string, t *target, n int) {
	b.Helper()
	_, outcome := t.sample(b)
	now, err := t.store.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	shift := now.Sub(outcome.EndedAt)
	for _, at := range []*store.Instant{&outcome.CreatedAt, &outcome.UpdatedAt, &outcome.StartedAt, &outcome.EndedAt, &outcome.ExpiresAt, &outcome.NextAt} {
		*at = at.Add(shift)
	}
	group, ctx := errgroup.WithContext(b.Context())
	for w := range fillers {
		group.Go(func() error {
			for i := w; i < n; i += fillers {
				rec := outcome
				rec.ID.Key = known(i)
				rec.Attributes = store.Attributes{"order": known(i)}
				binary.BigEndian.PutUint64(rec.Revision[8:], uint64(i))
				if _, applied, err := t.store.Apply(ctx, store.Write{Record: &rec}); err != nil || !applied {
					return errors.Join(fmt.Errorf("record %d, applied: %t", i, applied), err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	t.records = n
	if p.dir != "" {
		settle(b, p.dir+"/"+name)
	}
}

// settle waits until no file in a directory has changed for a second, so that the work of the
// embedded store on what the fill has left isn't taken for a cost of the calls.
func settle(b *testing.B, dir string) {
	b.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for before, quiet := "", 0; quiet < 10; <-tick.C {
		var files strings.Builder
		entries, err := os.ReadDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil { // or it was removed meanwhile
				fmt.Fprintln(&files, e.Name(), info.Size())
			}
		}
		if quiet++; files.String() != before {
			before, quiet = files.String(), 0
		}
	}
}
