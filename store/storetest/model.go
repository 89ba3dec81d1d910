package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// histories is how many random histories a store plays. With -short, as under the race
// detector, they are fewer: one caller plays them, step by step.
func histories() int {
	if testing.Short() {
		return 10
	}
	return 60
}

var modelCases = []testCase{
	{"random histories give the same outcomes as on the memory store",
		"Deciding stays in the engine, so that no two stores can disagree.", func(t *testing.T, env Env) {
			start := seed()
			t.Logf("repeat with -storetest.seed=%d", start)
			p := newPair(&env)
			defer p.close()
			for i := range histories() {
				if err := p.play(t.Context(), start+uint64(i)); err != nil {
					t.Fatalf("-storetest.seed=%d: %v", start+uint64(i), err)
				}
			}
		}},
}

// pair is a store and the oracle. Both play the same histories, on records and through an engine.
type pair struct {
	env    *Env
	oracle *memstore.Store
	both   store.Extras
	played int
	now    store.Instant  // when the last history ended
	kinds  map[string]int // of the oracle's answers
}

func newPair(env *Env) *pair {
	return &pair{env: env, oracle: memstore.New(), both: env.Store.Extras(), now: epoch, kinds: map[string]int{}}
}

func (p *pair) close() { _ = p.oracle.Close() }

// play plays one random history. If the store differs from the oracle, play looks for a shorter
// history that shows a difference.
func (p *pair) play(ctx context.Context, seed uint64) error {
	steps := drawSteps(rand.New(rand.NewPCG(seed, 1)))
	first := p.compare(ctx, steps)
	if first == nil {
		return nil
	}
	steps = shortest(steps, func(less []step) bool { return p.compare(ctx, less) != nil })
	if err := p.compare(ctx, steps); err != nil {
		first = err
	}
	return fmt.Errorf("%w\nthe history:\n%s", first, listed(steps))
}

// compare plays a history on both, step by step, and describes the first difference. Each history
// begins after the last one ended, because a store may remember the latest time it saw, and has a
// tenant of its own.
func (p *pair) compare(ctx context.Context, steps []step) (err error) {
	begin := p.now.Add(time.Hour)
	p.played++
	tenant := fmt.Sprint("tenant-", p.played)
	ours, err := newPlayer(ctx, p.env.Store, p.both, tenant, begin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	if p.env.Reopen != nil {
		ours.reopen = func() semel.Store {
			p.env.Store = p.env.Reopen()
			return p.env.Store
		}
	}
	oracle, err := newPlayer(ctx, p.oracle, p.both, tenant, begin)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, oracle.close())
		p.now = max(ours.clock.at, oracle.clock.at)
	}()
	var log []string
	for i, s := range steps {
		got, want := ours.step(i, s), oracle.step(i, s)
		if err := errors.Join(ours.fault, oracle.fault); err != nil {
			return fmt.Errorf("step %d, %v: %w", i, s, err)
		}
		if got != want {
			return fmt.Errorf("step %d, %v, differs from the memory store:\n  it gives %s: %s\n  want     %s: %s\nafter:\n%s",
				i, s, got.kind, got.text, want.kind, want.text, strings.Join(log[max(0, len(log)-8):], ""))
		}
		p.kinds[want.kind]++
		log = append(log, fmt.Sprintf("  %3d %v: %s %.300s\n", i, s, want.kind, want.text))
	}
	got, want := ours.last(), oracle.last()
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("what is stored in the end differs from the memory store:\n  it is %s\n  want  %s", got[i].text, want[i].text)
		}
	}
	return errors.Join(ours.fault, oracle.fault)
}
