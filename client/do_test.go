package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

// TestDoMeansWhatTheEnginesDoMeans runs the same handlers through a client and an engine,
// and compares what the callers and their duplicates get.
func TestDoMeansWhatTheEnginesDoMeans(t *testing.T) {
	cause := errors.New("the cause")
	cases := map[string]func(ctx context.Context, x semel.Execution) (semel.Result, error){
		"a result":                   answers(data(`{"z":1,"a":"<&>é"}`), nil),
		"a result with white space":  answers(data(" {\"a\" : 1e400}\n"), nil),
		"a result of any bytes":      answers(data("\x00\xff{"), nil),
		"an empty result":            answers(data(""), nil),
		"no result":                  answers(semel.Result{}, nil),
		"a result that is too large": answers(data(strings.Repeat("x", 300<<10)), nil),
		"a failure":                  answers(semel.Result{}, cause),
		"a failure with a result":    answers(data("why"), cause),
		"a rejection":                answers(data("no"), semel.Rejected("too_much", cause)),
		"an abort":                   answers(semel.Result{}, semel.Aborted(cause)),
		"an unknown outcome":         answers(semel.Result{}, semel.Unknown(cause)),
		"a failure in many words":    answers(semel.Result{}, errors.New(strings.Repeat("é", 2000))),
		"an effect": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			v, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) { return "done", nil })
			return data(v), err
		},
		"an effect that was refused": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) {
				return "", semel.Rejected("declined", cause)
			})
			return semel.Result{}, err
		},
		"an effect that did not happen": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) { return "", semel.Aborted(cause) })
			return semel.Result{}, err
		},
		"an effect of which nothing is known": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) { return "", cause })
			return semel.Result{}, err
		},
		"a result in spite of an open effect": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, err := x.StartEffect(ctx, "charge")
			return data("x"), err
		},
		"an abort in spite of an open effect": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, _ = x.StartEffect(ctx, "charge")
			return data("x"), semel.Aborted(cause)
		},
		"an effect that is started twice": func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			_, _ = x.StartEffect(ctx, "charge")
			_, err := x.StartEffect(ctx, "charge")
			return data("x"), err
		},
	}
	for name, fn := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service) {
				c := newClient(t, direct{s.handler})
				remote, local := call("remote"), call("local")
				local.Tenant, local.Principal = "acme", "shop"
				for delivery := range 2 {
					got, gotErr := c.Do(t.Context(), remote, fn)
					want, wantErr := s.engine.Do(t.Context(), local, fn)
					same(t, got, want)
					g, _ := errors.AsType[*semel.Error](gotErr)
					w, _ := errors.AsType[*semel.Error](wantErr)
					if (g == nil) != (w == nil) || g != nil && g.Code != w.Code || errors.Is(gotErr, cause) != errors.Is(wantErr, cause) {
						t.Errorf("delivery %d: got error %v, want %v", delivery+1, gotErr, wantErr)
					}
				}
			})
		})
	}
}

// same compares what two callers got for two equal calls.
func same(t *testing.T, got, want semel.Answer) {
	t.Helper()
	if got.Decision != want.Decision || (got.Record == nil) != (want.Record == nil) {
		t.Fatalf("got %s, want %s", got.Decision, want.Decision)
	}
	g, w := got.Record, want.Record
	if g.State != w.State || string(g.Result.Data) != string(w.Result.Data) || (g.Result.Data == nil) != (w.Result.Data == nil) || g.Result.Tombstone != w.Result.Tombstone {
		t.Errorf("got %s, %.100q; want %s, %.100q", g.State, g.Result.Data, w.State, w.Result.Data)
	}
	if want.Decision == semel.Held {
		if !g.Held || g.ID != id("remote") {
			t.Errorf("held without a reason, or about another call: %+v", g)
		}
		return // the service shows no more of such a record
	}
	if g.Disposition != w.Disposition || g.Attempt != w.Attempt || g.Held != w.Held || g.HeldReason != w.HeldReason || g.Principal != w.Principal || len(g.Effects) != len(w.Effects) {
		t.Errorf("got %+v, want %+v", g, w)
	}
	for i := range w.Effects {
		if g.Effects[i].State != w.Effects[i].State {
			t.Errorf("effect %d is %s, want %s", i, g.Effects[i].State, w.Effects[i].State)
		}
	}
	if (g.Failure == nil) != (w.Failure == nil) || g.Failure != nil && w.Failure != nil && g.Failure.Code != w.Failure.Code {
		t.Errorf("got failure %+v, want %+v", g.Failure, w.Failure)
	}
}

func TestDuplicatesGetTheEnginesDecisions(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		started, finish := make(chan struct{}), make(chan struct{})
		var first semel.Answer
		var firstErr error
		done := make(chan struct{})
		go func() {
			defer close(done)
			first, firstErr = c.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
				close(started)
				<-finish
				return data("x"), nil
			})
		}()
		<-started
		never := func(context.Context, semel.Execution) (semel.Result, error) {
			t.Error("executed twice")
			return semel.Result{}, nil
		}
		_, err := c.Do(t.Context(), call("k"), never)
		if e := wantCode(t, err, semel.CodeInFlight); e.RetryAfter <= 0 || !errors.Is(err, semel.ErrInFlight) {
			t.Errorf("got %v", err)
		}
		other := call("k")
		other.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte("y"))
		_, err = c.Do(t.Context(), other, never)
		wantCode(t, err, semel.CodeConflict)
		waiting := call("k")
		waiting.Wait = 20 * time.Second
		go func() {
			<-time.After(10 * time.Second)
			close(finish)
		}()
		ans, err := c.Do(t.Context(), waiting, never)
		if must(t, err); ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "x" {
			t.Errorf("got %+v", ans)
		}
		<-done
		if must(t, firstErr); string(first.Record.Result.Data) != "x" {
			t.Errorf("got %+v", first)
		}
		_, err = c.Do(t.Context(), semel.Call{Operation: "none", Key: "k"}, never)
		wantCode(t, err, semel.CodeUnknownOperation)
		_, err = c.Do(t.Context(), semel.Call{Operation: "op"}, never)
		wantCode(t, err, semel.CodeInvalidCall)
	})
}

func TestAHandlerRunsMuchLongerThanItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		ctx, hangUp := context.WithCancel(t.Context())
		_, err := c.Do(ctx, call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			hangUp() // stops neither the work nor its recording
			select {
			case <-ctx.Done():
				t.Error("stopped:", context.Cause(ctx))
			case <-time.After(10 * time.Minute):
			}
			return data("x"), x.Renew(ctx)
		})
		must(t, err)
		rec, err := c.Lookup(t.Context(), id("k"))
		if must(t, err); rec.State != semel.Completed || rec.Attempt != 1 || rec.CreatedAt == 0 || rec.EndedAt.Sub(rec.CreatedAt) < 10*time.Minute {
			t.Errorf("got %+v", rec)
		}
	})
}

func TestAHandlerIsToldBeforeItsLeaseIsOver(t *testing.T) {
	lease := 30 * time.Second
	inBubble(t, func(t *testing.T, s *service) {
		var cut atomic.Bool
		c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errors.New("no route")
			}
			return direct{s.handler}.RoundTrip(r)
		}))
		start := time.Now()
		_, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			cut.Store(true)
			<-ctx.Done()
			if d := time.Since(start); d < lease*8/10 || d >= lease {
				t.Errorf("told after %v", d)
			}
			if !errors.Is(context.Cause(ctx), semel.ErrLeaseLost) {
				t.Errorf("told %v", context.Cause(ctx))
			}
			if _, err := x.StartEffect(ctx, "charge"); !errors.Is(err, semel.ErrLeaseLost) {
				t.Errorf("an effect could be started: %v", err)
			}
			return semel.Result{}, context.Cause(ctx)
		})
		wantCode(t, err, semel.CodeLeaseLost)
	}, semel.Operation{Name: "op", Lease: lease})
}

func TestAHandlerIsToldAtOnceThatItsRecordWasSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		_, err := c.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			a, err := s.engine.Internal().Attach(ctx, x.ID(), x.Fence())
			must(t, err)
			must(t, a.Abort(ctx, store.Failure{Message: "by another"}))
			start := time.Now()
			<-ctx.Done()
			if d := time.Since(start); d > 11*time.Second {
				t.Errorf("told after %v", d)
			}
			return data("x"), nil
		})
		wantCode(t, err, semel.CodeAlreadyEnded)
	})
}

// A panic proves nothing, so the call is held.
func TestAPanicIsRecordedAndGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		func() {
			defer func() {
				if v := recover(); v != "oh" {
					t.Errorf("recovered %v", v)
				}
			}()
			_, _ = c.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) { panic("oh") })
		}()
		_, err := c.Do(t.Context(), call("k"), answers(data("x"), nil))
		wantCode(t, err, semel.CodeHeld)
	})
}

// A refusal of a request says that nothing was done for it, and not of the work before.
func TestAnEndThatIsNotTakenIsUnknown(t *testing.T) {
	for _, code := range []string{"overloaded", "body_too_slow", "body_unreadable"} {
		inBubble(t, func(t *testing.T, s *service) {
			c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/complete") {
					return direct{s.handler}.RoundTrip(r)
				}
				return &http.Response{
					StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/problem+json"}}, Request: r,
					Body: io.NopCloser(strings.NewReader(`{"status":503,"code":"` + code + `","detail":"Nothing was executed."}`)),
				}, nil
			}))
			_, err := c.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) { return data("x"), nil })
			wantCode(t, err, semel.CodeUnknown)
		})
	}
}

func TestAnEndThatIsNotAnsweredIsUnknownAndNeverAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		var cut atomic.Bool
		c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errors.New("no route")
			}
			return direct{s.handler}.RoundTrip(r)
		}))
		ctx, hangUp := context.WithCancel(t.Context())
		start := time.Now()
		_, err := c.Do(ctx, call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
			cut.Store(true)
			hangUp()
			return data("x"), nil
		})
		wantCode(t, err, semel.CodeUnknown)
		if d := time.Since(start); d != client.DefaultTimeout {
			t.Errorf("told after %v", d)
		}
		cut.Store(false)
		pass(5 * time.Second)
		rec, err := c.Lookup(t.Context(), id("k"))
		if must(t, err); rec.State != semel.Completed {
			t.Errorf("sending did not go on: %s", rec.State)
		}
		_, err = c.Do(t.Context(), call("k2"), func(context.Context, semel.Execution) (semel.Result, error) {
			cut.Store(true)
			start = time.Now()
			return data("x"), nil
		})
		wantCode(t, err, semel.CodeUnknown)
		if d := time.Since(start); d < 25*time.Second || d > 35*time.Second {
			t.Errorf("gave up after %v, not when the lease was over", d)
		}
	})
}

func TestACallForAnotherIdentityIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		for _, wrong := range []semel.Call{{Tenant: "other"}, {Principal: "other"}} {
			wrong.Operation, wrong.Key = "op", "k"
			for range 2 { // the right to execute was given back
				_, err := c.Do(t.Context(), wrong, answers(data("x"), nil))
				wantCode(t, err, semel.CodeInvalidCall)
			}
		}
		right := semel.Call{Tenant: "acme", Principal: "shop", Operation: "op", Key: "k"}
		_, err := c.Do(t.Context(), right, answers(data("x"), nil))
		must(t, err)
		right.Tenant = "other"
		ans, err := c.Do(t.Context(), right, answers(data("y"), nil))
		if wantCode(t, err, semel.CodeInvalidCall); ans.Record != nil {
			t.Errorf("the answer of another was shown: %+v", ans.Record)
		}
	})
}

func TestARightWhoseAnswerWasLateIsRenewedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		var paths []string
		c := newClient(t, known(func(r *http.Request) (*http.Response, error) {
			paths = append(paths, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
			resp, err := direct{s.handler}.RoundTrip(r)
			if len(paths) == 1 {
				<-time.After(15 * time.Second)
			}
			return resp, err
		}))
		b, err := c.Begin(t.Context(), call("k"))
		must(t, err)
		if got := strings.Join(paths, " "); got != "executions renew" || time.Since(b.Since) != 0 || b.Lease != semel.DefaultLease {
			t.Errorf("sent %s, the lease began %v ago", got, time.Since(b.Since))
		}
		rec, err := c.Complete(t.Context(), b.Execution, data("x"))
		if must(t, err); rec.State != semel.Completed {
			t.Errorf("got %+v", rec)
		}
		_, err = c.Complete(t.Context(), b.Execution, data("x"))
		must(t, err)
		_, err = c.Fail(t.Context(), b.Execution, store.Failure{Message: "no"}, semel.Result{})
		wantCode(t, err, semel.CodeAlreadyEnded)
		synctest.Wait()
	})
}
