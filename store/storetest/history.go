package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// histories returns how many random histories a store plays: fewer with -short, as under the
// race detector, because one caller plays them step by step.
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
	kinds  map[string]int // kinds of the oracle's answers
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

// compare plays a history on both, step by step, and describes the first difference. Each
// history begins after the last one ended, because a store may remember the latest time that it
// saw, and each has its own tenant.
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

// verb says what a step of a history does.
type verb string

// The verbs, first of stores, then of engines, then time.
const (
	vGet     verb = "get"
	vApply   verb = "apply"
	vAgain   verb = "again" // repeats an earlier write
	vDue     verb = "due"
	vPurge   verb = "purge"
	vSearch  verb = "search"
	vReopen  verb = "reopen"
	vBegin   verb = "begin"
	vEnd     verb = "end"
	vRenew   verb = "renew"
	vEffect  verb = "effect"
	vSettle  verb = "settle"
	vLookup  verb = "lookup"
	vForget  verb = "forget" // purge by an operator
	vSweep   verb = "sweep"
	vAdvance verb = "advance"
)

// weighted has each verb as many times as its weight.
var weighted = func() (all []verb) {
	for v, times := range map[verb]int{
		vGet: 3, vAdvance: 6, vBegin: 14, vEnd: 10, vEffect: 9, vRenew: 2, vSettle: 4, vLookup: 2, vForget: 2,
		vSweep: 3, vApply: 16, vAgain: 3, vDue: 4, vPurge: 4, vSearch: 4,
	} {
		all = append(all, slices.Repeat([]verb{v}, times)...)
	}
	slices.Sort(all)
	return all
}()

// step is one operation of a history. The meaning of the numbers depends on the verb, and is
// relative to what has happened so far, such as the second newest attempt. So a history still
// makes sense without some of its steps.
type step struct {
	verb    verb
	id      int // among the identities in play
	a, b, c int
}

func (s step) String() string { return fmt.Sprintf("%s id=%d %d,%d,%d", s.verb, s.id, s.a, s.b, s.c) }

// drawSteps draws a history.
func drawSteps(r *rand.Rand) []step {
	// Few identities, some of them much more often than others, so that steps meet. Each
	// history prefers different ones.
	ids := []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7}
	focus := r.IntN(identities)
	steps := make([]step, r.IntN(150))
	for i := range steps {
		steps[i] = step{
			verb: weighted[r.IntN(len(weighted))], id: (ids[r.IntN(len(ids))] + focus) % identities,
			a: r.IntN(12), b: r.IntN(12), c: r.IntN(12),
		}
	}
	// Reopen late, when there is something to lose, or after a purge, when there is something
	// to bring back. Do it rarely, so that bugs that need many writes show up, too.
	at := len(steps) - len(steps)/4
	switch r.IntN(6) {
	case 0:
	case 1:
		for at > 0 && steps[at-1].verb != vPurge {
			at--
		}
	default:
		return steps
	}
	return slices.Insert(steps, at, step{verb: vReopen})
}

// shortest removes the steps that a history doesn't need in order to fail.
func shortest(steps []step, fails func([]step) bool) []step {
	for n := len(steps) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(steps); {
			if less := slices.Concat(steps[:i], steps[i+n:]); fails(less) {
				steps = less
			} else {
				i += n
			}
		}
	}
	return steps
}

func listed(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "  %3d %v\n", i, s)
	}
	return b.String()
}
