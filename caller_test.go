package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func boundCall(to, payload string) semel.Call {
	return semel.Call{
		Operation: "op", Key: "0f8fad5b-d9cb-469f-a165-70867728950e", BoundTo: to,
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
	}
}

func engineFor(t *testing.T, op semel.Operation) *semel.Engine {
	t.Helper()
	op.Name = "op"
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{op}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

// TestAnotherCallerLearnsNothing: whatever became of a call, a delivery that brings
// something else than it is bound to gets the same bare answer.
func TestAnotherCallerLearnsNothing(t *testing.T) {
	ends := map[string]func(t *testing.T, a *semel.Attempt){
		"in flight": func(*testing.T, *semel.Attempt) {},
		"completed": func(t *testing.T, a *semel.Attempt) {
			if err := a.Complete(t.Context(), semel.Result{Data: []byte("secret")}); err != nil {
				t.Fatal(err)
			}
		},
		"failed, and to be tried again": func(t *testing.T, a *semel.Attempt) {
			if err := a.Fail(t.Context(), store.Failure{Message: "secret"}, semel.Result{}); err != nil {
				t.Fatal(err)
			}
		},
		"aborted": func(t *testing.T, a *semel.Attempt) {
			if err := a.Abort(t.Context(), store.Failure{}); err != nil {
				t.Fatal(err)
			}
		},
		"held": func(t *testing.T, a *semel.Attempt) {
			if err := a.Hold(t.Context(), "secret"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, end := range ends {
		for _, who := range [][2]string{{"a", "b"}, {"", "b"}, {"a", ""}} {
			t.Run(name+", "+who[0]+" then "+who[1], func(t *testing.T) {
				e := engineFor(t, semel.Operation{OnFailure: semel.RetryFailure, MaxWait: time.Minute})
				first, err := e.Begin(t.Context(), boundCall(who[0], "1"))
				if err != nil || first.Attempt == nil {
					t.Fatal(first, err)
				}
				end(t, first.Attempt)
				for _, payload := range []string{"1", "2"} {
					call := boundCall(who[1], payload)
					call.Wait = time.Minute // there is nothing to wait for
					begun, err := e.Begin(t.Context(), call)
					if err != nil {
						t.Fatal(err)
					}
					peeked, err := e.Door().Peek(t.Context(), call)
					if err != nil {
						t.Fatal(err)
					}
					for _, ans := range []semel.Answer{begun, peeked} {
						if ans.Decision != semel.OtherCaller || ans.Attempt != nil || ans.RetryAfter != 0 {
							t.Fatalf("got %+v", ans)
						}
						if rec := *ans.Record; rec.ID == (semel.ID{}) || rec.State != 0 || rec.Result.Data != nil || rec.Held != "" || rec.Failure != nil || rec.Fence != 0 {
							t.Fatalf("the answer tells of the call: %+v", rec)
						}
						if err := ans.Err(); !errors.Is(err, &semel.Error{Code: semel.CodeOtherCaller}) || strings.Contains(err.Error(), "secret") {
							t.Fatal(err)
						}
					}
					call.Holder = first.Attempt.Record().Holder
					if at, err := e.Door().Reclaim(t.Context(), call); at != nil || err != nil {
						t.Fatal("another caller was given the claim", err)
					}
				}
			})
		}
	}
}

func TestAnotherCallerExecutesOnceTheCallIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engineFor(t, semel.Operation{Window: time.Minute})
		first, err := e.Begin(t.Context(), boundCall("a", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Minute)
		second, err := e.Begin(t.Context(), boundCall("b", "1"))
		if err != nil || second.Decision != semel.Execute || second.Record.BoundTo != "b" || second.Record.Attempt != 1 {
			t.Fatal(second, err)
		}
		if err := second.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAStrangerCannotUseUpALimit: the deliveries of another caller are limited by
// themselves.
func TestAStrangerCannotUseUpALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := semel.Rate{PerSecond: 0.001, Burst: 2}
		e := engineFor(t, semel.Operation{PerRecord: rate, PerPrincipal: rate})
		do := func(to string) semel.Decision {
			ans, err := e.Begin(t.Context(), boundCall(to, "1"))
			if err != nil {
				t.Fatal(err)
			}
			if ans.Attempt != nil {
				if err := ans.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
					t.Fatal(err)
				}
			}
			return ans.Decision
		}
		do("a")
		for i, want := range []semel.Decision{semel.OtherCaller, semel.OtherCaller, semel.Throttled, semel.Throttled} {
			if got := do("b"); got != want {
				t.Fatalf("delivery %d of the stranger got %s", i, got)
			}
		}
		if got := do("a"); got != semel.Replay {
			t.Fatalf("the caller itself got %s", got)
		}
	})
}

// TestTwoCredentialsAndOneKey: of any deliveries under two credentials, those of the
// first to come behave as if there were no others, and the others never execute and
// never see an answer.
func TestTwoCredentialsAndOneKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := semel.Operation{Name: "op", OnFailure: rapid.SampledFrom([]semel.AfterFailure{semel.RetryFailure, semel.ReplayFailure}).Draw(t, "on failure")}
		e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{op}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		owner, effects := "", 0
		var running *semel.Attempt
		deliver := func(t *rapid.T) {
			call := boundCall(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "credential"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "payload"))
			ans, err := e.Begin(context.Background(), call)
			if err != nil {
				t.Fatal(err)
			}
			if ans.Decision == semel.Execute {
				if running != nil {
					t.Fatal("two attempts at once")
				}
				running = ans.Attempt
				if effects == 0 && owner == "" {
					owner = "=" + call.BoundTo
				}
			}
			if mine := owner == "="+call.BoundTo; mine == (ans.Decision == semel.OtherCaller) {
				t.Fatalf("%q got %s of a call that is bound to %q", call.BoundTo, ans.Decision, owner)
			}
		}
		end := func(t *rapid.T) {
			if running == nil {
				t.Skip("nothing runs")
			}
			var err error
			switch rapid.SampledFrom([]string{"complete", "fail", "abort"}).Draw(t, "end") {
			case "complete":
				effects++
				err = running.Complete(context.Background(), semel.Result{Data: []byte(owner)})
			case "fail":
				err = running.Fail(context.Background(), store.Failure{}, semel.Result{})
			case "abort":
				err = running.Abort(context.Background(), store.Failure{})
			}
			if err != nil {
				t.Fatal(err)
			}
			running = nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": deliver, "end": end,
			"": func(t *rapid.T) {
				if effects > 1 {
					t.Fatalf("%d effects", effects)
				}
			},
		})
	})
}

// TestScopes: a scope is a part of the identity that nothing else can imitate.
func TestScopes(t *testing.T) {
	allow := func(context.Context, semel.Call, semel.Record) error { return nil }
	for _, op := range []semel.Operation{{}, {Share: semel.ShareTenant, Authorize: allow}} {
		e := engineFor(t, op)
		seen := map[semel.ID]string{}
		for _, c := range [][2]string{{"alice", ""}, {"alice", "a"}, {"alice", "ab"}, {"alice", "a\u241fb"}, {"alic", "ea"}, {"", "a"}, {"", ""}} {
			if op.Share == semel.ShareTenant && c[0] != "alice" {
				continue
			}
			call := boundCall("", "1")
			call.Principal, call.Scope = c[0], c[1]
			id := call.ID(op.Share)
			if other, twice := seen[id]; twice {
				t.Errorf("%q and %q are one identity", c, other)
			}
			seen[id] = c[0] + "/" + c[1]
			principal, scope := id.Scope()
			if scope != c[1] || op.Share != semel.ShareTenant && principal != c[0] {
				t.Errorf("%q is taken apart as %q and %q", c, principal, scope)
			}
			ans, err := e.Begin(t.Context(), call)
			if err != nil || ans.Decision != semel.Execute || ans.Record.ID != id || ans.Record.Principal != c[0] {
				t.Fatal(ans, err)
			}
		}
	}
	e := engineFor(t, semel.Operation{})
	for name, call := range map[string]semel.Call{
		"a principal with the mark":    {Operation: "op", Key: "k", Principal: "a\u241fb"},
		"a principal that is too long": {Operation: "op", Key: "k", Principal: strings.Repeat("x", 257)},
		"a scope that is too long":     {Operation: "op", Key: "k", Scope: strings.Repeat("x", 129)},
		"a scope with a NUL byte":      {Operation: "op", Key: "k", Scope: "a\x00"},
	} {
		if _, err := e.Begin(t.Context(), call); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := semel.Call{Operation: "op", Key: "k", Principal: strings.Repeat("x", 256), Scope: strings.Repeat("y", 128)}
	ans, err := e.Begin(t.Context(), longest)
	if err != nil {
		t.Fatal(err)
	}
	id := ans.Record.ID
	if back, err := store.DecodeID(id.Encode()); err != nil || back != id {
		t.Fatal(back, err)
	}
}

// TestAnotherCallerOfAnOpenTransaction: of what a transaction does nothing can be seen
// before it commits but whose call it is.
func TestAnotherCallerOfAnOpenTransaction(t *testing.T) {
	began := func(t *testing.T, r *rig, b *base, c semel.Call, want semel.Decision) {
		t.Helper()
		x, err := b.begin(t.Context())
		must(t, err)
		defer x.Rollback(t.Context())
		ans, a, err := r.BeginTx(t.Context(), x, c)
		if err != nil || ans.Decision != want || (a != nil) != (want == semel.Execute) {
			t.Fatalf("bound to %q: %s, %v; want %s", c.BoundTo, ans.Decision, err, want)
		}
		if rec := ans.Record; want == semel.OtherCaller && (rec.ID != c.ID("") || rec.BoundTo != "" || rec.State != 0 || ans.RetryAfter != 0) {
			t.Errorf("it learns %+v", rec)
		}
	}
	t.Run("that has left nothing yet", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), boundCall("first", "x"), b.begin, func(ctx context.Context, _ store.OwnTx) (semel.Result, error) {
				began(t, r, b, boundCall("second", "x"), semel.OtherCaller)
				began(t, r, b, boundCall("", "x"), semel.OtherCaller)
				began(t, r, b, boundCall("first", "x"), semel.InFlight)
				_, err := r.DoTx(ctx, boundCall("second", "x"), b.begin, row("second", nil))
				wantCode(t, err, semel.CodeOtherCaller)
				return data("x"), nil
			})
			must(t, err)
			began(t, r, b, boundCall("second", "x"), semel.OtherCaller)
			began(t, r, b, boundCall("first", "x"), semel.Replay)
			b.wantRows(t)
		})
	})
	t.Run("that is a stranger's", func(t *testing.T) {
		inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), boundCall("first", "x"), b.begin, row("first", semel.Failure(errors.New("no"))))
			wantCode(t, err, semel.CodeFailed)
			x, err := b.begin(t.Context())
			must(t, err)
			c := boundCall("second", "x")
			if lock, err := x.Lock(t.Context(), c.ID(""), c.BoundTo); err != nil || lock != store.TxLocked {
				t.Fatal(lock, err)
			}
			began(t, r, b, boundCall("third", "x"), semel.OtherCaller)
			began(t, r, b, boundCall("first", "x"), semel.InFlight) // it is the first's own call
			x.Rollback(t.Context())
			began(t, r, b, boundCall("first", "x"), semel.Execute)
		})
	})
}
