package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// The operations of the histories: the same policies as elsewhere, with leases
// that end while they run.
var (
	opShortHold  = semel.Operation{Name: "short-hold", Lease: 40 * time.Millisecond}
	opShortRetry = semel.Operation{Name: "short-retry", Lease: 40 * time.Millisecond, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned}
)

var claimCases = []testCase{
	{
		name:     "engines that share the store give one history, while their calls to it fail, their connections are cut and their holders die",
		why:      ruleOnce + " " + ruleFence + " " + ruleLinear,
		realTime: true,
		run: func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-INV.1", "CORE-INV.2", "CORE-INV.3", "CORE-STATE.2", "CORE-CONC.2", "IDS-IX.1", "IDS-IX.3", "IDS-XIII.2")
			start := seed()
			t.Logf("repeat with -storetest.seed=%d", start)
			rep, err := claims(t.Context(), env.Store, start, nil)
			t.Log(rep)
			if err != nil {
				t.Fatal(err)
			}
			if rep.unknown == 0 || rep.takeovers == 0 || len(rep.faults) == 0 {
				t.Fatal("too little has happened to prove anything")
			}
		},
	},
}

// claimReport is what a run did.
type claimReport struct {
	report
	decisions map[semel.Decision]int
	ends      map[endOutput]int
	takeovers int
	writes    int
}

func (r claimReport) String() string {
	return fmt.Sprintf("%d operations, %d with an unknown result, %d takeovers, %d writes; decisions %v; ends %v; faults fired: %v",
		r.ops, r.unknown, r.takeovers, r.writes, r.decisions, r.ends, r.faults)
}

// rig runs engines and clients on one store and records what they see.
type rig struct {
	store   semel.Store
	seed    uint64
	wrap    func(engine int, s semel.Store) semel.Store
	start   time.Time
	rec     recorder
	written *chains

	mu       sync.Mutex
	engines  []*semel.Engine
	controls []*faultstore.Control
	runs     map[string]int // executions by operation, key and fence
	rep      claimReport
}

// Sizes of a run: groups of clients that fight for the keys of their group, for
// one pair after the other.
const (
	rigEngines = 3
	rigGroups  = 12
	rigClients = 4
	rigPairs   = 5
	rigCalls   = 5 // per client and pair
)

// claims runs one history of about two seconds and checks it. Wrap, if any, is
// put between each engine and the store.
func claims(ctx context.Context, store semel.Store, seed uint64, wrap func(engine int, s semel.Store) semel.Store) (claimReport, error) {
	r := &rig{
		store: store, seed: seed, wrap: wrap, start: time.Now(), written: newChains(), runs: map[string]int{},
		rep: claimReport{decisions: map[semel.Decision]int{}, ends: map[endOutput]int{}},
	}
	for range rigEngines {
		if _, _, err := r.engine(); err != nil {
			return r.rep, err
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
	err := r.settle(ctx)
	err = errors.Join(err, r.close(ctx))
	return r.rep, errors.Join(err, r.check())
}

// engine adds an engine whose calls to the store fail at random.
func (r *rig) engine() (*semel.Engine, *faultstore.Control, error) {
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
	e, err := semel.New(wrapped, &semel.Options{
		Operations: []semel.Operation{opShortHold, opShortRetry}, StoreTimeout: 15 * time.Millisecond, Node: fmt.Sprint("engine ", n),
	})
	r.engines, r.controls = append(r.engines, e), append(r.controls, control)
	return e, control, err
}

// cutAndHeal takes the store from one engine after the other, long enough for
// leases to end.
func (r *rig) cutAndHeal(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.seed, 'n'))
	for {
		r.mu.Lock()
		control := r.controls[random.IntN(rigEngines)]
		r.mu.Unlock()
		control.Cut([]faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Hang}[random.IntN(3)])
		err := pass(ctx, time.Duration(40+random.IntN(80))*time.Millisecond)
		control.Heal()
		if err != nil || pass(ctx, time.Duration(random.IntN(60))*time.Millisecond) != nil {
			return
		}
	}
}

// client makes calls one after the other. Where it is told to execute it works
// for a while and ends the attempt in one of the possible ways, or dies.
func (r *rig) client(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(r.seed, uint64(n)))
	for i := range rigPairs * rigCalls {
		op := &opShortHold
		if random.IntN(2) == 0 {
			op = &opShortRetry
		}
		key := fmt.Sprintf("%d-%d-%d", r.seed, n/rigClients, i/rigCalls*2+random.IntN(2))
		r.mu.Lock()
		e := r.engines[random.IntN(rigEngines)]
		r.mu.Unlock()
		var dies *faultstore.Control
		if random.IntN(12) == 0 {
			// A process of its own, which will die with what it holds.
			var err error
			if e, dies, err = r.engine(); err != nil {
				panic(err) // the same options were accepted before
			}
		}
		print := "payload"
		if random.IntN(10) == 0 {
			print = "another payload"
		}
		c := call(*op, key)
		c.Fingerprint = payload(print)
		if random.IntN(3) == 0 {
			c.Wait = 20 * time.Millisecond
		}
		a := r.begin(ctx, n, e, op, c, print)
		switch {
		case a != nil && dies != nil:
			dies.Cut(faultstore.NotApplied)
		case a != nil:
			r.hold(ctx, n, op, key, a, random)
		}
		if pass(ctx, time.Duration(random.IntN(30))*time.Millisecond) != nil {
			return
		}
	}
}

// begin records one delivery.
func (r *rig) begin(ctx context.Context, client int, e *semel.Engine, op *semel.Operation, c semel.Call, print string) *semel.Attempt {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
	defer cancel()
	at := r.rec.call()
	in := beginInput{op: op, key: c.Key, print: print, called: time.Since(r.start)}
	ans, err := e.Begin(ctx, c)
	out := beginOutput{unknown: err != nil, decision: ans.Decision, returned: time.Since(r.start)}
	if err == nil {
		out.fence = ans.Record.Fence
	}
	if ans.Decision == semel.Replay {
		out.outcome = ans.Record.Disposition.String() + " " + string(ans.Record.Result.Data)
	}
	if err != nil {
		out.returned = time.Hour // it may happen at any time
	}
	r.rec.done(client, at, in, out, err != nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.rep.unknown++
		return nil
	}
	r.rep.decisions[ans.Decision]++
	if ans.Attempt != nil {
		r.runs[fmt.Sprintf("%s %s under fence %d", op.Name, c.Key, ans.Record.Fence)]++
		if earlier := ans.Record.Earlier; len(earlier) > 0 && earlier[len(earlier)-1].Disposition == semel.DispositionAbandoned {
			r.rep.takeovers++
		}
	}
	return ans.Attempt
}

// hold works under an attempt and ends it.
func (r *rig) hold(ctx context.Context, client int, op *semel.Operation, key string, a *semel.Attempt, random *rand.Rand) {
	work := time.Duration(random.IntN(15)) * time.Millisecond
	if random.IntN(4) == 0 {
		work += 2 * op.Lease
	}
	_ = pass(ctx, work)
	in := endInput{op: op, key: key, fence: a.Fence()}
	if random.IntN(4) == 0 {
		renew := in
		renew.renew = true
		r.end(client, renew, func() error { return a.Renew(ctx) })
	}
	kinds := []semel.Disposition{semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed, semel.DispositionAborted, 0}
	weights := []int{55, 5, 15, 22, 3}
	p := random.IntN(100)
	in.kind = kinds[slices.IndexFunc(weights, func(w int) bool { p -= w; return p < 0 })]
	result := fmt.Sprintf("result of fence %d by client %d", a.Fence(), client)
	in.ending = in.kind.String() + " " + result
	res, f := semel.Result{Data: []byte(result)}, semel.Failure{Code: "code"}
	for range 4 {
		out := r.end(client, in, func() error {
			switch in.kind {
			case semel.DispositionCompleted:
				return a.Complete(ctx, res)
			case semel.DispositionRejected:
				return a.Reject(ctx, f, res)
			case semel.DispositionFailed:
				return a.Fail(ctx, f, res)
			case semel.DispositionAborted:
				return a.Abort(ctx, f)
			}
			return a.Hold(ctx, result)
		})
		if out != endUnknown || pass(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// end records what a holder did.
func (r *rig) end(client int, in endInput, do func() error) endOutput {
	at := r.rec.call()
	in.called = time.Since(r.start)
	err := do()
	out := endUnknown
	switch {
	case err == nil:
		out = endOK
	case errors.Is(err, semel.ErrLeaseLost):
		out = endLost
	case errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}), errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}):
		out = endAlready
	}
	r.rec.done(client, at, in, out, out == endUnknown)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rep.ends[out]++
	if out == endUnknown {
		r.rep.unknown++
	}
	return out
}
