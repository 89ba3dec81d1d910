package storetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// planted is a handle on a memory store that outlives it, as a disk would, with
// a bug: the functions that are set take the place of the sound ones.
type planted struct {
	apply  func(ctx context.Context, w store.Write) (*semel.Record, bool, error)
	get    func(ctx context.Context, id semel.ID) (*semel.Record, error)
	now    func(ctx context.Context) (store.Instant, error)
	due    func(ctx context.Context, q store.DueQuery) (store.DuePage, error)
	purge  func(ctx context.Context, refs []store.Ref) (int, error)
	watch  func(ctx context.Context, id semel.ID) (<-chan struct{}, func())
	find   func(ctx context.Context, q store.Query) (store.Page, error)
	close  func() error
	log    func(ctx context.Context, entries []store.Entry) error
	read   func(ctx context.Context, from uint64, limit int) ([]store.Entry, error)
	locate func(ctx context.Context, subject store.Subject, from uint64, limit int) ([]uint64, error)
	erase  func(ctx context.Context, from, to uint64) error
	put    func(ctx context.Context, tiles map[string][]byte) error
	tile   func(ctx context.Context, name string) ([]byte, error)

	opened int                          // how often the store was opened before
	last   atomic.Pointer[semel.Record] // of a handle: the last record that was written
	mu     sync.RWMutex                 // held for reading by running calls
	closed bool
}

var errClosed = errors.New("closed")

func sound(m *memstore.Store) *planted {
	p := &planted{apply: m.Apply, get: m.Get, now: m.Now, due: m.Due, purge: m.Purge, watch: m.Watch, find: m.Search}
	p.log, p.read, p.locate, p.erase, p.put, p.tile = m.AppendEvidence, m.ReadEvidence, m.FindEvidence, m.EraseEvidence, m.PutEvidenceTiles, m.EvidenceTile
	p.close = func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed = true
		return nil
	}
	return p
}

// running is a call while the handle is open.
func running[T any](p *planted, f func() (T, error)) (T, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		var zero T
		return zero, errClosed
	}
	return f()
}

func (p *planted) Apply(ctx context.Context, w store.Write) (cur *semel.Record, applied bool, err error) {
	applied, err = running(p, func() (bool, error) {
		cur, applied, err = p.apply(ctx, w)
		if applied {
			p.last.Store(w.Record)
		}
		return applied, err
	})
	return cur, applied, err
}

func (p *planted) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	return running(p, func() (*semel.Record, error) { return p.get(ctx, id) })
}

func (p *planted) Now(ctx context.Context) (store.Instant, error) {
	return running(p, func() (store.Instant, error) { return p.now(ctx) })
}

func (p *planted) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return running(p, func() (store.DuePage, error) { return p.due(ctx, q) })
}

func (p *planted) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	return running(p, func() (int, error) { return p.purge(ctx, refs) })
}

func (p *planted) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	return p.watch(ctx, id)
}

func (p *planted) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return running(p, func() (store.Page, error) { return p.find(ctx, q) })
}

func (p *planted) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	_, err := running(p, func() (any, error) { return nil, p.log(ctx, entries) })
	return err
}

func (p *planted) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	return running(p, func() ([]store.Entry, error) { return p.read(ctx, from, limit) })
}

func (p *planted) FindEvidence(ctx context.Context, subject store.Subject, from uint64, limit int) ([]uint64, error) {
	return running(p, func() ([]uint64, error) { return p.locate(ctx, subject, from, limit) })
}

func (p *planted) EraseEvidence(ctx context.Context, from, to uint64) error {
	_, err := running(p, func() (any, error) { return nil, p.erase(ctx, from, to) })
	return err
}

func (p *planted) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	_, err := running(p, func() (any, error) { return nil, p.put(ctx, tiles) })
	return err
}

func (p *planted) EvidenceTile(ctx context.Context, name string) ([]byte, error) {
	return running(p, func() ([]byte, error) { return p.tile(ctx, name) })
}

func (p *planted) Extras() store.Extras {
	return store.Extras{Due: p, Purge: p, Watch: p, Search: p, Evidence: p}
}

func (p *planted) Close() error { return p.close() }

// blind applies a write whatever is stored.
func blind(ctx context.Context, m *memstore.Store, w store.Write) (*semel.Record, bool, error) {
	for {
		cur, err := m.Get(ctx, w.Record.ID)
		if err == nil {
			w.Expect = cur.Revision
		} else {
			w.Expect = store.Revision{}
		}
		if cur, applied, err := m.Apply(ctx, w); applied || err != nil {
			return cur, applied, err
		}
	}
}

// bugEnv names the bug that TestStore plants.
const bugEnv = "STORETEST_PLANTED_BUG"

// TestStore runs the suite on handles on a memory store; when a variable asks for
// it, with a bug.
func TestStore(t *testing.T) {
	plant := func(*planted, *memstore.Store) {}
	if name := os.Getenv(bugEnv); name != "" {
		for _, bug := range plantedBugs {
			if bug.name == name {
				plant = bug.plant
			}
		}
	}
	Run(t, Virtual("planted", func(t *testing.T) Env {
		m := memstore.New()
		p := sound(m)
		plant(p, m)
		t.Cleanup(func() { _ = m.Close() })
		return Env{Store: p, Reopen: func() semel.Store {
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			again := sound(m)
			again.opened = p.opened + 1
			again.last.Store(p.last.Load())
			p = again
			plant(p, m)
			return p
		}}
	}))
}

// TestPlantedBugsAreCaught runs, for each bug, the cases that must catch it in a
// process of their own. One that passes proves nothing.
func TestPlantedBugsAreCaught(t *testing.T) {
	rewrite := func(name string) string { return strings.ReplaceAll(name, " ", "_") }
	for _, bug := range plantedBugs {
		t.Run("a store that "+bug.name, func(t *testing.T) {
			t.Parallel()
			var names, patterns []string
			for _, prefix := range bug.caught {
				matches := 0
				for _, g := range allGroups() {
					for _, c := range g.cases {
						if strings.HasPrefix(c.name, prefix) {
							matches++
							names = append(names, rewrite(c.name))
							patterns = append(patterns, regexp.QuoteMeta(rewrite(c.name)))
						}
					}
				}
				if matches != 1 {
					t.Fatalf("%d cases have names that begin with %q", matches, prefix)
				}
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStore$/^("+strings.Join(patterns, "|")+")$", "-test.timeout=5m", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), bugEnv+"="+bug.name)
			out, err := cmd.CombinedOutput()
			for _, name := range names {
				if !strings.Contains(string(out), "--- FAIL: TestStore/"+name+" ") {
					t.Errorf("not caught by %s", name)
				}
			}
			if t.Failed() {
				t.Logf("%v\n%s", err, out)
			}
		})
	}
}

// TestPlantedEngineBugsAreCaught plants what only histories of several engines
// can show.
func TestPlantedEngineBugsAreCaught(t *testing.T) {
	t.Run("one engine's clock runs ahead, so it takes over too early", func(t *testing.T) {
		t.Parallel()
		ahead := func(engine int, s semel.Store) semel.Store {
			p := sound(s.(*memstore.Store))
			if engine == 0 {
				p.now = func(ctx context.Context) (store.Instant, error) {
					at, err := s.Now(ctx)
					return at.Add(opShortRetry.Lease), err
				}
			}
			return p
		}
		caught(t, ahead, history.RuleOrder)
	})
	t.Run("one engine hears of no record, so it executes beside the others", func(t *testing.T) {
		t.Parallel()
		deaf := func(engine int, s semel.Store) semel.Store {
			p := sound(s.(*memstore.Store))
			if engine == 0 {
				other := memstore.New()
				p.apply, p.get = other.Apply, other.Get
			}
			return p
		}
		caught(t, deaf, history.RuleOrder)
	})
}

// caught runs a history whose check must fail for a reason.
func caught(t *testing.T, wrap func(int, semel.Store) semel.Store, why string) {
	t.Helper()
	m := memstore.New()
	defer m.Close()
	rep, err := claims(t.Context(), m, seed(), wrap)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Fatalf("the check gives %v, want one that says %q\n%v", err, why, rep)
	}
}
