//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/history"
)

// briefly is how long the settler of a fake node goes on asking.
const briefly = time.Second

// startFake starts a fake node behind a network that can fail, and returns its client.
func startFake(t *testing.T, bug string, log *history.Log) (*fakeNode, *worker, *faultnet.Net) {
	t.Helper()
	upstream := newUpstream(1, log.Add)
	upstream.work = func(*rand.Rand) time.Duration { return time.Millisecond }
	fake := &fakeNode{bug: bug, upstream: upstream, calls: map[string]*fakeCall{}}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	network, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", server.Listener.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	here := newWorker(workerConfig{Name: "here", Nodes: []string{network.Addr()}}, log.Add)
	here.unit = 5 * time.Millisecond
	t.Cleanup(here.wire.close)
	return fake, here, network
}

// playFake has the workers of the rig deliver calls to a fake node, over a network that
// tears now and then, and judges.
func playFake(t *testing.T, bug string) (*history.Log, []history.Violation) {
	t.Helper()
	log := history.NewLog(rules, fakeLease)
	fake, here, network := startFake(t, bug, log)
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 4 {
		network.Set([]faultnet.Fault{faultnet.Healthy, faultnet.Torn}[round%2])
		var all sync.WaitGroup
		for n := range 20 {
			op := []string{opOnce, opSteps, opPay, opGapless, opOwned}[n%5]
			for delivery := range 1 + rng.IntN(6) {
				j := newJob(rng, op, fmt.Sprintf("k%d-%d", round, n))
				j.Before, j.After, j.Hangup = 0, 0, 0
				switch op {
				case opGapless:
					j.Number, j.Payload, j.After = 1+delivery%3, 1, fakeLease/20
				case opOwned:
					j.Caller = []string{"", "stranger"}[delivery%2]
				}
				all.Go(func() { here.deliver(context.Background(), j) })
			}
		}
		all.Wait()
	}
	network.Set(faultnet.Healthy)
	// At the end all clocks leap, though not for as long as in a run.
	r := &run{log: log, here: here, nodes: []*node{{}}, ground: &ground{clock: fake.leap, network: network.Set}}
	for i, x := range r.trials() {
		x.lasts = min(x.lasts, 10*time.Millisecond)
		// How long it takes says nothing here: a request that the network swallows takes as
		// long as its client waits.
		if _, err := r.try(t.Context(), i, x); err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
	}
	r.settle(t.Context(), briefly)
	return log, log.Check()
}

func TestASoundNodePasses(t *testing.T) {
	log, found := playFake(t, "")
	for _, v := range found {
		t.Errorf("%s: %s: %s\n%s", v.Rule, v.Key, v.Text, log.Print(v.Key, 0))
	}
	sum := log.Summary()
	for _, word := range []string{
		history.Execute, history.Replay, history.InFlight, history.Conflict, history.None, history.OK, history.Answered, history.Failed,
		history.Gap, history.OtherCaller,
	} {
		if sum.Words[word] == 0 {
			t.Errorf("the run was no test: nobody was told %s: %v", word, sum.Words)
		}
	}
}

// TestABadNodeIsFound plants bugs in the node.
func TestABadNodeIsFound(t *testing.T) {
	for bug, want := range map[string]string{
		"grants twice":         history.RuleTwice,
		"fences fall":          history.RuleFence,
		"answers change":       history.RuleMadeUp,
		"forgets":              history.RuleOrder,
		"completions get lost": history.RuleLost,
		"calls stay in flight": history.RuleForever,
		"sends twice":          history.RuleSentTwice,
		"believes its clock":   history.RuleTwice,

		"numbers meet":                  history.RuleAtOnce,
		"numbers have gaps":             history.RuleGap,
		"earlier numbers are forgotten": history.RuleLost,
		"strangers are answered":        history.RuleForeign,
		"strangers keep keys":           history.RuleOusted,
		"refusals get lost":             history.RuleOrder,
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			var found []history.Violation
			for range 25 { // some show only where calls meet in time, which takes longer on a busy machine
				_, found = playFake(t, bug)
				if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == want }) {
					return
				}
			}
			t.Errorf("%q was not found: %v", want, found)
		})
	}
}
