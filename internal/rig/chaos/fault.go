//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// fault is one way in which something fails.
type fault struct {
	name string
	// targets are the parts that it may affect. No two faults affect one target at the same
	// time.
	targets []string
	// do injects and undoes it, and reports how often it affected something.
	do func(s *injection) (hits int, err error)
}

// injection is a fault that is being injected.
type injection struct {
	ctx    context.Context // ends early when the run does
	rng    *rand.Rand
	target string
	lasts  time.Duration
}

// wait lasts as long as the fault.
func (s *injection) wait() { stage.Pause(s.ctx, s.lasts) }

// during repeats something as long as the fault lasts.
func (s *injection) during(every time.Duration, f func() int) (hits int) {
	ctx, cancel := context.WithTimeout(s.ctx, s.lasts)
	defer cancel()
	for ctx.Err() == nil {
		hits += f()
		stage.Pause(ctx, every)
	}
	return hits
}

// injector injects faults, one after the other and at the same time.
type injector struct {
	faults []fault
	brief  bool // none lasts longer than a moment
	rng    *rand.Rand
	tell   func(name, text string)

	mu    sync.Mutex
	deck  []fault
	busy  map[string]bool
	fired map[string]int
}

// run injects faults until its context ends, in two sequences: one with short pauses and
// one with longer pauses, so that two faults sometimes overlap.
func (s *injector) run(ctx context.Context) {
	if len(s.faults) == 0 {
		return
	}
	var lanes sync.WaitGroup
	for _, gap := range []time.Duration{lease / 6, 2 * lease} {
		lanes.Go(func() {
			for ctx.Err() == nil {
				f, sh, wait := s.next(ctx, gap)
				if sh.target != "" {
					s.inject(f, sh)
					s.release(sh.target)
				}
				stage.Pause(ctx, wait)
			}
		})
	}
	lanes.Wait()
}

// next draws a fault. All are drawn before one is drawn again. It has no target if all of
// its targets are being affected by other faults.
func (s *injector) next(ctx context.Context, gap time.Duration) (fault, *injection, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.deck) == 0 {
		s.deck = slices.Clone(s.faults)
		s.rng.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	// Some last a moment, others longer than a lease, or than any client waits.
	type between struct{ from, to time.Duration }
	b := pick(s.rng, choice[between]{55, between{lease / 10, lease / 2}}, choice[between]{30, between{lease, 2 * lease}},
		choice[between]{15, between{slack, slack + lease}})
	if s.brief {
		b = between{lease / 10, lease / 3}
	}
	lasts := span(s.rng, b.from, b.to)
	sh := &injection{ctx: ctx, rng: rand.New(rand.NewPCG(s.rng.Uint64(), 4)), lasts: lasts}
	wait := span(s.rng, 0, gap)
	free := slices.DeleteFunc(slices.Clone(f.targets), func(t string) bool { return s.busy[t] })
	if len(free) > 0 {
		sh.target = free[s.rng.IntN(len(free))]
		s.busy[sh.target] = true
		return f, sh, wait
	}
	s.deck = append(s.deck, f)
	return f, sh, min(wait, lease/10)
}

// take takes a target from the faults, once none affects it.
func (s *injector) take(target string) {
	free := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		was := s.busy[target]
		s.busy[target] = true
		return !was
	}
	for !free() {
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *injector) release(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, target)
}

// inject injects one fault. It counts only if it affected something.
func (s *injector) inject(f fault, sh *injection) {
	if sh.ctx.Err() != nil {
		return
	}
	s.tell(f.name, fmt.Sprintf("%s begins: %s for %v", f.name, sh.target, sh.lasts.Round(time.Millisecond)))
	hits, err := f.do(sh)
	text := fmt.Sprintf("%s ends: %s", f.name, sh.target)
	if err != nil {
		text += ": " + err.Error()
	}
	s.tell(f.name, text)
	if hits > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fired[f.name]++
	}
}

// counts says how often each fault has affected something, 0 included.
func (s *injector) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.fired)
	for _, f := range s.faults {
		all[f.name] += 0
	}
	return all
}

// once is the result of a fault that hits whenever it does not fail.
func once(errs ...error) (int, error) {
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return 1, nil
}
