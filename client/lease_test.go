package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store"
)

// slow is a network over which requests arrive at once and answers take the time that a
// test says; zero is none.
type slow struct {
	next http.RoundTripper
	took func(path string) time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	select {
	case <-time.After(s.took(r.URL.Path)):
		return resp, err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// mayRun reports whether another delivery would execute the call now.
func mayRun(t *testing.T, s *service, key string) bool {
	t.Helper()
	c := call(key)
	c.Tenant, c.Principal, c.Door = "acme", "shop", api.Name
	ans, err := s.engine.Internal().Peek(t.Context(), c)
	must(t, err)
	return ans.Decision == semel.Execute
}

// However long answers take, no handler starts under a lease that is over or nearly so.
func TestNoRemoteHandlerStartsUnderALeaseThatIsOver(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	op := semel.Operation{Name: "op", Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	for _, c := range []struct {
		name string
		slow int // how many answers take so long
		took time.Duration
		runs bool
	}{
		{"one answer takes most of the lease", 1, 2900 * time.Millisecond, true},
		{"two take longer than the lease", 2, 3500 * time.Millisecond, true},
		{"all take half of the lease", 1 << 20, 1500 * time.Millisecond, false},
		{"all take longer than the lease", 1 << 20, 3500 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				left := c.slow
				remote := newClient(t, slow{direct{s.handler}, func(string) time.Duration {
					if left--; left < 0 {
						return 0
					}
					return c.took
				}})
				ran := false
				_, err := remote.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
					ran = true
					rec, err := s.engine.Lookup(t.Context(), id("k"))
					must(t, err)
					if left := time.Until(rec.LeaseUntil.Time()); left < 2*time.Second || mayRun(t, s, "k") {
						t.Errorf("it starts with %v of its lease left", left)
					}
					return data("x"), nil
				})
				if ran != c.runs {
					t.Fatalf("executed: %v, %v", ran, err)
				}
				if c.runs {
					must(t, err)
					return
				}
				wantCode(t, err, semel.CodeStoreUnavailable)
				pass(time.Minute) // until the last answer
				rec, err := s.engine.Lookup(t.Context(), id("k"))
				if must(t, err); rec.Disposition != semel.DispositionAborted {
					t.Errorf("what nobody executed is %s %s", rec.State, rec.Disposition)
				}
			}, op)
		})
	}
}

// An effect whose start was answered when the lease was over isn't called, and the ledger
// says so.
func TestNoRemoteEffectIsCalledUnderALeaseThatIsOver(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	op := semel.Operation{Name: "op", Lease: 3 * time.Second, Effects: []string{"charge"}, OnAbandoned: semel.RetryAbandoned}
	for name, heeds := range map[string]bool{"the effect has the handler's context": true, "the effect has its own": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/renew") {
						return nil, errBroken
					}
					return slow{direct{s.handler}, func(path string) time.Duration {
						if strings.HasSuffix(path, "/effects") {
							return 4 * time.Second
						}
						return 0
					}}.RoundTrip(r)
				}))
				_, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
					if !heeds {
						ctx = t.Context()
					}
					_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) {
						t.Error("the effect is called")
						return 1, nil
					})
					return semel.Result{}, err
				})
				wantCode(t, err, semel.CodeLeaseLost)
				rec, err := s.engine.Lookup(t.Context(), id("k"))
				if must(t, err); !heeds && (len(rec.Effects) != 1 || rec.Effects[0].State != store.EffectRefuted) {
					t.Errorf("the ledger is %+v", rec.Effects)
				}
			}, op)
		})
	}
}

// In the last tenth of a lease that wasn't renewed no effect is started, even if nothing has told
// the handler to stop: a renewal under way may be deaf to the end of its context.
func TestNoRemoteEffectIsStartedInTheLastTenthOfALease(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	const lease = 3 * time.Second
	for at, starts := range map[time.Duration]bool{lease * 89 / 100: true, lease * 91 / 100: false} {
		t.Run(at.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/renew") {
						pass(2 * lease)
						return nil, errBroken
					}
					return direct{s.handler}.RoundTrip(r)
				}))
				called := false
				_, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
					pass(at)
					_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) {
						called = true
						return 1, nil
					})
					return data("x"), err
				})
				if called != starts || !starts && !errors.Is(err, semel.ErrLeaseLost) {
					t.Errorf("the effect is called: %v; %v", called, err)
				}
				pass(2 * lease) // until the renewal ends
			}, semel.Operation{Name: "op", Lease: lease, Effects: []string{"charge"}})
		})
	}
}

// misled is a network with a proxy that, for an hour, refuses all requests whose path ends
// so.
func misled(s *service, suffix string, refused *atomic.Int64) http.RoundTripper {
	start := time.Now()
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, suffix) || time.Since(start) > time.Hour {
			return direct{s.handler}.RoundTrip(r)
		}
		refused.Add(1)
		return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>"))}, nil
	})
}

// An end that never gets through doesn't keep a call in flight, however well renewals do.
func TestAnEndThatNeverGetsThroughIsGivenUpWithItsLease(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	inBubble(t, func(t *testing.T, s *service) {
		var ends atomic.Int64
		c := newClient(t, misled(s, "/complete", &ends))
		start := time.Now()
		_, err := c.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
			<-time.After(time.Minute)
			return data("x"), nil
		})
		wantCode(t, err, semel.CodeUnknown)
		if d := time.Since(start) - time.Minute; d > semel.DefaultLease+client.DefaultMaxPause || ends.Load() < 2 {
			t.Errorf("gave up %v after the work and %d tries", d, ends.Load())
		}
		pass(semel.DefaultLease)
		if !mayRun(t, s, "k") {
			t.Error("the call is still in flight")
		}
	}, semel.Operation{Name: "op", OnAbandoned: semel.RetryAbandoned})
}

// The same goes for the result of an effect: the handler goes on, and can say that it
// isn't known.
func TestAnEffectsResultThatNeverGetsThroughIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		var tries atomic.Int64
		c := newClient(t, misled(s, "/effects/settle", &tries))
		start := time.Now()
		_, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) { return 1, nil })
			if d := time.Since(start); d > semel.DefaultLease+client.DefaultMaxPause || tries.Load() < 2 {
				t.Errorf("gave up after %v and %d tries", d, tries.Load())
			}
			return semel.Result{}, err
		})
		wantCode(t, err, semel.CodeUnknown)
		_, err = c.Do(t.Context(), call("k"), answers(data("x"), nil))
		wantCode(t, err, semel.CodeHeld)
	})
}
