package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// shortLease is the lease of the operations below: it ends while they run.
const shortLease = 40 * time.Millisecond

// The operations of the histories, with the rules for checking these.
var (
	opShortHold  = semel.Operation{Name: "short-hold", Lease: shortLease}
	opShortRetry = semel.Operation{Name: "short-retry", Lease: shortLease, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned}
	shortOps     = []semel.Operation{opShortHold, opShortRetry}
	shortRules   = map[string]history.Rules{
		opShortHold.Name:  {Timed: true},
		opShortRetry.Name: {Timed: true, Repeats: true, Retries: true},
	}
)

var claimCases = []testCase{
	{"engines that share the store give one history, while their calls to it fail, their connections are cut and their holders die",
		ruleOnce + " " + ruleFence + " " + ruleLinear, func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-INV.1", "CORE-INV.2", "CORE-INV.3", "CORE-STATE.2", "CORE-CONC.2", "IDS-IX.1", "IDS-IX.3", "IDS-XIII.2")
			start := seed()
			t.Logf("repeat with -storetest.seed=%d", start)
			// On a busy machine a history may consist of timeouts only; then the test runs
			// another one.
			for n := range uint64(5) {
				rep, err := claims(t.Context(), env.Store, start+n, nil)
				t.Log(rep)
				if err != nil {
					t.Fatal(err)
				}
				if rep.Words[history.None] > 0 && rep.takeovers > 0 && len(rep.faults) > 0 {
					return
				}
			}
			t.Fatal("too little has happened to prove anything")
		}},
}

// claimReport is what a run did.
type claimReport struct {
	history.Summary
	takeovers, writes int
	faults            map[faultstore.Fault]int
}

func (r claimReport) String() string {
	return fmt.Sprintf("%d requests, %d takeovers, %d writes; answers: %v; faults fired: %v", r.Requests, r.takeovers, r.writes, r.Words, r.faults)
}

// rig runs engines and clients on one store and logs what they see.
type rig struct {
	store     semel.Store
	seed      uint64
	wrap      func(engine int, s semel.Store) semel.Store
	start     time.Time
	log       *history.Log
	asked     atomic.Int64 // requests
	takeovers atomic.Int64
	written   *chains

	mu      sync.Mutex
	engines []*holder
}

// holder is a process that holds attempts: an engine whose connection to the store can fail.
type holder struct {
	*semel.Engine
	number  int
	control *faultstore.Control
}

// Sizes of a run: groups of clients that fight for their group's keys, one pair after the
// other.
const (
	rigEngines = 3
	rigGroups  = 12
	rigClients = 4
	rigPairs   = 5
	rigCalls   = 5 // per client and pair
)

// claims runs one history of about two seconds and checks it. wrap, if any, goes between each
// engine and the store.
func claims(ctx context.Context, s semel.Store, seed uint64, wrap func(engine int, s semel.Store) semel.Store) (claimReport, error) {
	r := &rig{store: s, seed: seed, wrap: wrap, start: time.Now(), log: history.NewLog(shortRules, shortLease), written: newChains()}
	for range rigEngines {
		if _, err := r.engine(); err != nil {
			return claimReport{}, err
		}
	}
	nemesis, stop := context.WithCancel(ctx)
	var wg, bad sync.WaitGroup
	bad.Go(func() { r.cutAndHeal(nemesis) })
	for i := range rigGroups * rigClients {
		wg.Go(func() { r.client(ctx, i) })
	}
	wg.Wait()
	stop()
	bad.Wait()
	err := errors.Join(r.settle(ctx), r.close(ctx), r.check())
	if err != nil {
		err = fmt.Errorf("-storetest.seed=%d: %w", r.seed, err)
	}
	return r.report(), err
}

// engine adds an engine over a store that fails at random.
func (r *rig) engine() (*holder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.engines)
	s := r.store
	if r.wrap != nil {
		s = r.wrap(n, s)
	}
	wrapped, control := faultstore.New(s, &faultstore.Options{
		Seed: r.seed + uint64(n), Delay: 3 * time.Millisecond, Reached: r.written.reached,
		Rates: map[faultstore.Fault]float64{
			{Verb: faultstore.Apply, Form: faultstore.NotApplied}: 0.03,
			{Verb: faultstore.Apply, Form: faultstore.Applied}:    0.04,
			{Verb: faultstore.Apply, Form: faultstore.Late}:       0.04,
			{Verb: faultstore.Apply, Form: faultstore.Slow}:       0.3,
			{Verb: faultstore.Get, Form: faultstore.NotApplied}:   0.02,
			{Verb: faultstore.Now, Form: faultstore.NotApplied}:   0.005,
		},
	})
	e, err := semel.New(wrapped, &semel.Options{Operations: shortOps, StoreTimeout: 15 * time.Millisecond, Node: fmt.Sprint("engine ", n)})
	h := &holder{e, n, control}
	r.engines = append(r.engines, h)
	return h, err
}

// one returns one of the engines that live as long as the run.
func (r *rig) one(random *rand.Rand) *holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engines[random.IntN(rigEngines)]
}

// cutAndHeal cuts one engine after the other off from the store, long enough for leases to end.
func (r *rig) cutAndHeal(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.seed, 'n'))
	for {
		control := r.one(random).control
		control.Cut([]faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Hang}[random.IntN(3)])
		err := pass(ctx, time.Duration(40+random.IntN(80))*time.Millisecond)
		control.Heal()
		if err != nil || pass(ctx, time.Duration(random.IntN(60))*time.Millisecond) != nil {
			return
		}
	}
}

// client makes calls one after the other. When it may execute, it works for a while and ends
// the attempt in one of the possible ways, or dies.
func (r *rig) client(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(r.seed, uint64(n)))
	for i := range rigPairs * rigCalls {
		d := delivery{op: shortOps[random.IntN(2)], payload: 1, key: r.key(n/rigClients, i/rigCalls*2+random.IntN(2))}
		e, dies := r.one(random), random.IntN(12) == 0
		if dies {
			// Its own process, which will die with its attempts.
			var err error
			if e, err = r.engine(); err != nil {
				panic(err) // the same options were valid before
			}
		}
		if random.IntN(10) == 0 {
			d.payload = 2
		}
		if random.IntN(3) == 0 {
			d.wait = 20 * time.Millisecond
		}
		a, _ := r.begin(ctx, e, d)
		switch {
		case a != nil && dies:
			r.log.Add(r.event(d, history.Effect))
			e.control.Cut(faultstore.NotApplied)
		case a != nil:
			r.hold(ctx, e, d, a, random)
		}
		if pass(ctx, time.Duration(random.IntN(30))*time.Millisecond) != nil {
			return
		}
	}
}
