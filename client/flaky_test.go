package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// flaky is a network that loses requests and answers, delays them, delivers them again
// later, and has a bad proxy in it.
type flaky struct {
	next  http.RoundTripper
	share float64 // of requests that something happens to

	mu     sync.Mutex
	rand   *rand.Rand
	faults map[string]int
	late   sync.WaitGroup
}

var errBroken = errors.New("the connection broke")

func (f *flaky) draw() (fault string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rand.Float64() < f.share {
		kinds := []string{"drop request", "drop answer", "deliver later", "deliver twice", "delay request", "delay answer", "tear answer", "bad gateway"}
		fault = kinds[f.rand.IntN(len(kinds))]
		f.faults[fault]++
	}
	return fault, time.Duration(f.rand.Int64N(int64(20 * time.Second)))
}

// again delivers the request once more, for nobody.
func (f *flaky) again(r *http.Request, d time.Duration) {
	if r.Body == nil {
		return // it asks who answers
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(strings.NewReader(string(body)))
	f.late.Go(func() {
		<-time.After(d)
		if resp, err := f.next.RoundTrip(again); err == nil {
			_ = resp.Body.Close()
		}
	})
}

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	fault, d := f.draw()
	switch fault {
	case "drop request":
		return nil, errBroken
	case "deliver later":
		f.again(r, d)
		return nil, errBroken
	case "deliver twice":
		f.again(r, d)
	case "delay request":
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			f.again(r, d) // it was on its way
			return nil, r.Context().Err()
		}
	}
	resp, err := f.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch fault {
	case "drop answer":
		return nil, errBroken
	case "delay answer":
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	case "tear answer":
		resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, 10), brokenBody{}))
	case "bad gateway":
		resp.StatusCode, resp.Body = http.StatusBadGateway, io.NopCloser(strings.NewReader("<html>"))
		resp.Header = http.Header{"Content-Type": {"text/html"}}
	}
	return resp, nil
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// provider counts what reaches it.
type provider struct {
	mu   sync.Mutex
	hits map[string]int // by the effect's key
}

func (p *provider) charge(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits[key]++
	return "charged " + key
}

// TestEffectsHappenOnceOverANetworkThatFails makes several clients deliver the same calls
// over a bad network. Whatever is lost, no effect happens twice, and everybody who gets a
// result gets the same.
func TestEffectsHappenOnceOverANetworkThatFails(t *testing.T) {
	clause.Proves(t, "CORE-INV.1", "CORE-INV.2")
	t.Parallel()
	const clients, calls = 3, 12
	var completed, held int
	faults := map[string]int{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, semel.Operation{Name: "op", Lease: 30 * time.Second, OnAbandoned: semel.HoldAbandoned})
			net := &flaky{next: direct{s.handler}, share: 0.35, rand: rand.New(rand.NewPCG(seed, 1)), faults: faults}
			p := &provider{hits: map[string]int{}}
			var mu sync.Mutex
			results := map[string]map[string]bool{}
			called := map[string]bool{} // keys with an effect that was called
			var all sync.WaitGroup
			for n := range clients {
				c := newClient(t, net)
				for k := range calls {
					key := fmt.Sprint("k", k)
					all.Go(func() {
						<-time.After(time.Duration(n*k) * 700 * time.Millisecond)
						for range 3 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							ans, err := c.Do(ctx, call(key), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
								mu.Lock()
								if called[key] {
									t.Errorf("seed %d: %s ran again after it had an effect", seed, key)
								}
								mu.Unlock()
								for _, name := range []string{"one", "two"} {
									if _, err := semel.Effect(ctx, x, name, func(_ context.Context, effectKey string) (string, error) {
										mu.Lock()
										called[key] = true
										mu.Unlock()
										<-time.After(time.Duration(k) * 5 * time.Second)
										return p.charge(effectKey), nil
									}); err != nil {
										return semel.Result{}, err
									}
								}
								return data("result of " + key), nil
							})
							cancel()
							if err == nil {
								mu.Lock()
								if results[key] == nil {
									results[key] = map[string]bool{}
								}
								results[key][string(ans.Record.Result.Data)] = true
								mu.Unlock()
							}
							<-time.After(7 * time.Second)
						}
					})
				}
			}
			all.Wait()
			// Ends that their callers gave up are still sent until the lease is over.
			<-time.After(2 * time.Minute)
			net.late.Wait()
			synctest.Wait()
			for key, n := range p.hits {
				if n != 1 {
					t.Errorf("seed %d: effect %s happened %d times", seed, key, n)
				}
			}
			for k := range calls {
				key := fmt.Sprint("k", k)
				if got := results[key]; len(got) > 1 || len(got) == 1 && !got["result of "+key] {
					t.Errorf("seed %d: %s gave %v", seed, key, got)
				}
				rec, err := s.engine.Lookup(t.Context(), id(key))
				if err != nil {
					continue // no request about it has arrived
				}
				if len(results[key]) > 0 && rec.State != semel.Completed {
					t.Errorf("seed %d: somebody got a result of %s, which is %s", seed, key, rec.State)
				}
				if rec.State == semel.Completed {
					completed++
					if len(rec.Effects) != 2 || rec.Effects[0].State != store.EffectConfirmed || rec.Effects[1].State != store.EffectConfirmed {
						t.Errorf("seed %d: %s was completed with %+v", seed, key, rec.Effects)
					}
				} else {
					held++
				}
			}
		})
	}
	if completed < 40*calls/2 || held == 0 {
		t.Errorf("%d calls were completed and %d were not: the network is not as bad, or not as good, as it should be", completed, held)
	}
	if len(faults) != 8 {
		t.Errorf("not all faults were drawn: %v", faults)
	}
	t.Log(completed, held, faults)
}

func TestABeginningIsRepeatedUntilItIsAnsweredAndOwnsTheSameRight(t *testing.T) {
	for _, fault := range []string{"answer", "request"} {
		t.Run("the "+fault+" is lost", func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				holders := map[string]int{}
				lost := 0
				c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					holders[r.Header.Get("Semel-Holder")]++
					if lost < 3 && strings.HasSuffix(r.URL.Path, "/executions") {
						lost++
						if fault == "answer" {
							_, _ = direct{s.handler}.RoundTrip(r)
						}
						return nil, errBroken
					}
					return direct{s.handler}.RoundTrip(r)
				}))
				ans, err := c.Do(t.Context(), call("k"), answers(data("x"), nil))
				if must(t, err); ans.Decision != semel.Execute || ans.Record.Attempt != 1 {
					t.Errorf("got %s, attempt %d", ans.Decision, ans.Record.Attempt)
				}
				delete(holders, "") // from requests that don't begin a call
				if len(holders) != 1 {
					t.Errorf("one delivery had %d holders", len(holders))
				}
				if _, err := c.Do(t.Context(), call("k"), answers(data("x"), nil)); err != nil || len(holders) != 2 {
					t.Errorf("%v; another delivery had the same holder", err)
				}
			})
		})
	}
}

func TestAnEffectWhoseStartWasNotAnsweredIsCalledOnce(t *testing.T) {
	for _, fault := range []string{"answer", "request"} {
		for lost := range 10 {
			t.Run(fmt.Sprint(lost, " times the ", fault, " is lost"), func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *service) {
					left := lost
					c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
						if left > 0 && strings.HasSuffix(r.URL.Path, "/effects") {
							left--
							if fault == "answer" {
								_, _ = direct{s.handler}.RoundTrip(r)
							}
							return nil, errBroken
						}
						return direct{s.handler}.RoundTrip(r)
					}))
					calls := 0
					ans, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
						_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) {
							calls++
							return 1, nil
						})
						return data("x"), err
					})
					if lost < 1+client.DefaultTries {
						if must(t, err); calls != 1 || len(ans.Record.Effects) != 1 {
							t.Errorf("%d calls, %+v", calls, ans.Record.Effects)
						}
						return
					}
					// Nothing was called, as the ledger shows.
					if wantCode(t, err, semel.CodeAborted); calls != 0 {
						t.Errorf("%d calls", calls)
					}
					for _, ef := range ans.Record.Effects {
						if ef.State != store.EffectRefuted {
							t.Errorf("the effect is %s", ef.State)
						}
					}
				})
			})
		}
	}
}

// What a handler says of its work counts more than that an effect could not be started.
func TestAMarkCountsMoreThanAnEffectThatCouldNotBeStarted(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"rejected": func(err error) error { return semel.Rejected("no", err) },
		"held":     semel.Unknown,
	} {
		inBubble(t, func(t *testing.T, s *service) {
			c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/effects") {
					return nil, errBroken
				}
				return direct{s.handler}.RoundTrip(r)
			}))
			ans, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				_, err := semel.Effect(ctx, x, "mail", func(context.Context, string) (int, error) { return 1, nil })
				return semel.Result{}, mark(err)
			})
			if rec := ans.Record; err == nil || rec.Held != (name == "held") || !rec.Held && rec.Disposition != semel.DispositionRejected {
				t.Errorf("%s: %+v, %v", name, rec, err)
			}
		}, semel.Operation{Name: "op", OnAbandoned: semel.RetryAbandoned})
	}
}

// An effect that could not be started says nothing about the work. Where the ledger has all
// effects of an operation, or its policy allows it, the next delivery runs, and at once.
func TestACallWhoseEffectCouldNotBeStartedRunsAgain(t *testing.T) {
	for name, op := range map[string]semel.Operation{
		"by the ledger": {Name: "op", Effects: []string{"reserve", "charge"}},
		"by the policy": {Name: "op", OnAbandoned: semel.RetryAbandoned},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				down := false
				c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if down && strings.HasSuffix(r.URL.Path, "/effects") {
						return nil, errBroken
					}
					return direct{s.handler}.RoundTrip(r)
				}))
				calls := map[string]int{}
				work := func(ctx context.Context, x semel.Execution) (semel.Result, error) {
					for _, effect := range []string{"reserve", "charge"} {
						if _, err := semel.Effect(ctx, x, effect, func(context.Context, string) (int, error) {
							calls[effect]++
							down = x.Number() == 1
							return 1, nil
						}); err != nil {
							return semel.Result{}, err
						}
					}
					return data("done"), nil
				}
				ans, err := c.Do(t.Context(), call("k"), work)
				if wantCode(t, err, semel.CodeAborted); ans.Record.Disposition != semel.DispositionAbandoned || !errors.Is(err, errBroken) {
					t.Errorf("%s, error %v", ans.Record.Disposition, err)
				}
				down = false
				ans, err = c.Do(t.Context(), call("k"), work)
				if must(t, err); ans.Decision != semel.Execute || calls["reserve"] != 1 || calls["charge"] != 1 {
					t.Errorf("%s, calls %v", ans.Decision, calls)
				}
			}, op)
		})
	}
}
