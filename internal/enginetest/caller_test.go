package enginetest

import (
	"context"
	"errors"
	"reflect"
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

// TestAnotherCallerLearnsNothing: of a call that something may have happened for, a
// delivery that brings something else than it is bound to learns nothing, but for when it
// is running.
func TestAnotherCallerLearnsNothing(t *testing.T) {
	ends := map[string]func(t *testing.T, a *semel.Attempt){
		"in flight": func(*testing.T, *semel.Attempt) {},
		"completed": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Complete(t.Context(), semel.Result{Data: []byte("secret")}))
		},
		"failed, and to be tried again": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Fail(t.Context(), store.Failure{Message: "secret"}, semel.Result{}))
		},
		"held": func(t *testing.T, a *semel.Attempt) { must(t, a.Hold(t.Context(), "secret")) },
	}
	for name, end := range ends {
		for _, who := range [][2]string{{"a", "b"}, {"", "b"}, {"a", ""}} {
			t.Run(name+", "+who[0]+" then "+who[1], func(t *testing.T) {
				want := semel.OtherCaller
				if name == "in flight" {
					want = semel.InFlight
				}
				e := engineFor(t, semel.Operation{OnFailure: semel.RetryFailure})
				first, err := e.Begin(t.Context(), boundCall(who[0], "1"))
				if err != nil || first.Attempt == nil {
					t.Fatal(first, err)
				}
				end(t, first.Attempt)
				for _, payload := range []string{"1", "2"} {
					call := boundCall(who[1], payload)
					begun, err := e.Begin(t.Context(), call)
					if err != nil {
						t.Fatal(err)
					}
					peeked, err := e.Internal().Peek(t.Context(), call)
					if err != nil {
						t.Fatal(err)
					}
					for _, ans := range []semel.Answer{begun, peeked} {
						if ans.Decision != want || ans.Attempt != nil || (ans.RetryAfter != 0) != (want == semel.InFlight) {
							t.Fatalf("got %+v", ans)
						}
						if !reflect.DeepEqual(*ans.Record, semel.Record{ID: call.ID("")}) {
							t.Fatalf("the answer tells of the call: %+v", *ans.Record)
						}
						if err := ans.Err(); !errors.Is(err, &semel.Error{Code: semel.Code(want)}) || strings.Contains(err.Error(), "secret") {
							t.Fatal(err)
						}
					}
					call.Holder = first.Attempt.Record().Holder
					if at, err := e.Internal().Reclaim(t.Context(), call); at != nil || err != nil {
						t.Fatal("another caller was given the claim", err)
					}
				}
			})
		}
	}
}

// TestAnotherCallerMayClaimWhatNeverHappened: while nothing has happened, nobody keeps a
// key from anybody else, and whoever claims it begins a new call.
func TestAnotherCallerMayClaimWhatNeverHappened(t *testing.T) {
	for name, end := range map[string]func(a *semel.Attempt) error{
		"aborted": func(a *semel.Attempt) error { return a.Abort(t.Context(), store.Failure{Message: "401"}) },
		"rejected": func(a *semel.Attempt) error {
			return a.Reject(t.Context(), store.Failure{Message: "400"}, semel.Result{Data: []byte("no")})
		},
	} {
		for _, who := range [][2]string{{"a", "b"}, {"", "b"}, {"a", ""}} {
			t.Run(name+", "+who[0]+" then "+who[1], func(t *testing.T) {
				e := engineFor(t, semel.Operation{})
				first := boundCall(who[0], "a squatter's")
				first.Attributes, first.Door = store.Attributes{"whose": "squatter"}, "elsewhere"
				var fence int64
				for range 20 { // more often than a record remembers
					ans, err := e.Begin(t.Context(), first)
					if must(t, err); ans.Attempt == nil {
						break // a refusal is kept for whom it was made
					}
					fence = ans.Attempt.Fence()
					must(t, end(ans.Attempt))
				}
				call := boundCall(who[1], "the owner's")
				call.Attributes = store.Attributes{"whose": "owner"}
				if would, err := e.Internal().Peek(t.Context(), call); err != nil || would.Decision != semel.Execute {
					t.Fatal(would, err)
				}
				ans, err := e.Begin(t.Context(), call)
				if err != nil || ans.Decision != semel.Execute {
					t.Fatal(ans, err)
				}
				rec := ans.Attempt.Record()
				if rec.Attempt != 1 || rec.Fence <= fence || rec.Origin != rec.Fence || len(rec.Earlier) != 0 || rec.BoundTo != who[1] || rec.Door != "" || rec.Attributes["whose"] != "owner" || rec.Fingerprint != call.Fingerprint {
					t.Fatalf("the call isn't new: %+v", rec)
				}
				must(t, ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("done")}))
				if again, err := e.Begin(t.Context(), call); err != nil || again.Decision != semel.Replay {
					t.Fatal(again, err)
				}
				want := semel.OtherCaller
				if name == "rejected" { // whoever got a refusal still gets it
					want = semel.Replay
				}
				if squatter, err := e.Begin(t.Context(), first); err != nil || squatter.Decision != want {
					t.Fatal(squatter, err)
				}
			})
		}
	}
}

// TestAnotherCallerWaits: whoever waits for the call of somebody else gets its place if
// nothing has happened, and never its outcome.
func TestAnotherCallerWaits(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(a *semel.Attempt) error
		want semel.Decision
	}{
		"for an abort":     {func(a *semel.Attempt) error { return a.Abort(t.Context(), store.Failure{}) }, semel.Execute},
		"for a refusal":    {func(a *semel.Attempt) error { return a.Reject(t.Context(), store.Failure{}, semel.Result{}) }, semel.Execute},
		"for an outcome":   {func(a *semel.Attempt) error { return a.Complete(t.Context(), data("secret")) }, semel.OtherCaller},
		"for a failure":    {func(a *semel.Attempt) error { return a.Fail(t.Context(), store.Failure{}, data("secret")) }, semel.OtherCaller},
		"for what is held": {func(a *semel.Attempt) error { return a.Hold(t.Context(), "secret") }, semel.OtherCaller},
		"in vain":          {func(*semel.Attempt) error { return nil }, semel.InFlight},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, semel.Operation{MaxWait: time.Minute, Lease: time.Hour}, func(t *testing.T, r *rig) {
				first, err := r.Begin(t.Context(), boundCall("a", "1"))
				must(t, err)
				go func() {
					<-time.After(10 * time.Second)
					if err := c.end(first.Attempt); err != nil {
						t.Error(err)
					}
				}()
				call := boundCall("b", "2")
				call.Wait = 20 * time.Second
				ans, err := r.Begin(t.Context(), call)
				if err != nil || ans.Decision != c.want || (ans.Attempt != nil) != (c.want == semel.Execute) {
					t.Fatalf("%+v, %v", ans, err)
				}
				if c.want != semel.Execute && !reflect.DeepEqual(*ans.Record, semel.Record{ID: call.ID("")}) {
					t.Errorf("it learns %+v", *ans.Record)
				}
			})
		})
	}
}

// TestAFreeKeyIsTooLateToo: what a stranger left in a key doesn't make a delivery that is
// too late look as if its call were remembered.
func TestAFreeKeyIsTooLateToo(t *testing.T) {
	e := engineFor(t, semel.Operation{RefuseLate: true, Window: time.Hour})
	squat, err := e.Begin(t.Context(), boundCall("a", "1"))
	must(t, err)
	must(t, squat.Attempt.Abort(t.Context(), store.Failure{}))
	call := boundCall("b", "1")
	call.FirstSent = time.Now().Add(-2 * time.Hour)
	if ans, err := e.Begin(t.Context(), call); err != nil || ans.Decision != semel.TooLate {
		t.Fatal(ans.Decision, err)
	}
}

// TestAStrangersConfirmation: asking for a token under somebody else's key neither keeps
// the owner from theirs nor mixes the two.
func TestAStrangersConfirmation(t *testing.T) {
	e := engineFor(t, semel.Operation{Confirmation: &semel.ConfirmationPolicy{}})
	asks := func(call semel.Call, code semel.Code) string {
		t.Helper()
		ans, err := e.Begin(t.Context(), call)
		if wantCode(t, err, code); ans.Challenge != nil {
			return ans.Challenge.Token
		}
		return ""
	}
	owner, stranger := boundCall("owner", "1"), boundCall("stranger", "2")
	owner.Confirm = asks(owner, semel.CodeConfirmationRequired)
	theirs := stranger
	theirs.Confirm = owner.Confirm
	asks(theirs, semel.CodeConfirmationRefused)
	if rec, err := e.Lookup(t.Context(), owner.ID("")); err != nil || rec.BoundTo != "owner" || len(rec.Confirmation.Tokens) != 1 || rec.Confirmation.Tries != 0 {
		t.Fatalf("a wrong token of a stranger changes %+v, %v", rec.Confirmation, err)
	}
	stranger.Confirm = asks(stranger, semel.CodeConfirmationRequired)
	asks(owner, semel.CodeConfirmationRefused) // it was the token of a call that is no more
	owner.Confirm = ""
	owner.Confirm = asks(owner, semel.CodeConfirmationRequired)
	if ans, err := e.Begin(t.Context(), owner); err != nil || ans.Decision != semel.Execute || ans.Record.BoundTo != "owner" {
		t.Fatalf("%+v, %v", ans, err)
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

// TestTwoCredentialsAndOneKey: whatever is delivered under two credentials and however it
// ends, as soon as something may have happened the call belongs to whom it happened for,
// and nobody else ever executes it or sees an answer. Before that anybody may.
func TestTwoCredentialsAndOneKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := semel.Operation{Name: "op", OnFailure: rapid.SampledFrom([]semel.AfterFailure{semel.RetryFailure, semel.ReplayFailure}).Draw(t, "on failure")}
		if rapid.Bool().Draw(t, "remembers") {
			op.Window, op.Remember = time.Hour, 5000*time.Hour
		}
		st := memstore.New()
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{op}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		var running *semel.Attempt
		owner, asked, began := "", "", false // whom the record is bound to, and for what
		happened, done := false, false
		refused := map[string]string{} // the payload of what was refused to a caller for good
		deliver := func(t *rapid.T) {
			payload := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "payload")
			call := boundCall(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "credential"), payload)
			ans, err := e.Begin(context.Background(), call)
			if err != nil {
				t.Fatal(err)
			}
			stranger := began && owner != call.BoundTo
			if payload, ok := refused[call.BoundTo]; ok {
				want := semel.Conflict
				if call.Fingerprint == boundCall("", payload).Fingerprint {
					want = semel.Replay
				}
				if ans.Decision != want {
					t.Fatalf("got %s, want %s of what was refused", ans.Decision, want)
				}
				return
			}
			switch {
			case stranger && running != nil:
				if ans.Decision != semel.InFlight {
					t.Fatalf("a stranger got %s of what runs", ans.Decision)
				}
			case stranger && happened:
				if ans.Decision != semel.OtherCaller {
					t.Fatalf("a stranger got %s", ans.Decision)
				}
			case stranger, !began:
				if ans.Decision != semel.Execute || ans.Attempt.Number() != 1 {
					t.Fatalf("got %s of what never happened", ans.Decision)
				}
			case ans.Decision == semel.OtherCaller:
				t.Fatal("the caller itself is taken for another")
			}
			if (stranger && ans.Decision != semel.Execute) && ans.Record.State != 0 {
				t.Fatalf("a stranger learns %+v", ans.Record)
			}
			if ans.Decision == semel.Execute {
				if running != nil || done {
					t.Fatal("executed again")
				}
				running, owner, began, asked = ans.Attempt, call.BoundTo, true, payload
			}
		}
		end := func(t *rapid.T) {
			if running == nil {
				t.Skip("nothing runs")
			}
			var err error
			switch rapid.SampledFrom([]string{"complete", "fail", "abort", "reject", "hold"}).Draw(t, "end") {
			case "complete":
				happened, done = true, true
				err = running.Complete(context.Background(), semel.Result{Data: []byte(owner)})
			case "fail":
				happened = true
				err = running.Fail(context.Background(), store.Failure{}, semel.Result{})
			case "abort":
				err = running.Abort(context.Background(), store.Failure{})
			case "reject":
				if !happened { // or it can't be told from what happened before
					refused[owner] = asked
				}
				err = running.Reject(context.Background(), store.Failure{}, semel.Result{})
			case "hold":
				happened, done = true, true
				err = running.Hold(context.Background(), "")
			}
			if err != nil {
				t.Fatal(err)
			}
			running = nil
		}
		pass := func(t *rapid.T) {
			if running != nil || op.Remember == 0 {
				t.Skip("nothing is remembered")
			}
			st.Advance(op.Window)
			clear(refused) // nothing happened by it, so others may have the key
			if rapid.Bool().Draw(t, "swept") {
				if _, err := e.Sweep(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){"deliver": deliver, "end": end, "pass": pass})
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
// before it commits but that it is at work.
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
		if rec := ans.Record; want == semel.InFlight && (rec.BoundTo != "" || rec.State != 0) || want == semel.OtherCaller && (rec.ID != c.ID("") || rec.BoundTo != "" || rec.State != 0 || ans.RetryAfter != 0) {
			t.Errorf("it learns %+v", rec)
		}
	}
	t.Run("that has left nothing yet", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), boundCall("first", "x"), b.begin, func(ctx context.Context, _ store.OwnTx) (semel.Result, error) {
				began(t, r, b, boundCall("second", "x"), semel.InFlight)
				began(t, r, b, boundCall("", "x"), semel.InFlight)
				began(t, r, b, boundCall("first", "x"), semel.InFlight)
				_, err := r.DoTx(ctx, boundCall("second", "x"), b.begin, row("second", nil))
				wantCode(t, err, semel.CodeInFlight)
				return data("x"), nil
			})
			must(t, err)
			began(t, r, b, boundCall("second", "x"), semel.OtherCaller)
			began(t, r, b, boundCall("first", "x"), semel.Replay)
			b.wantRows(t)
		})
	})
	t.Run("that may claim anew what was refused", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), boundCall("first", "x"), b.begin, row("first", semel.Rejected("no", errors.New("no"))))
			wantCode(t, err, semel.CodeRejected)
			_, err = r.DoTx(t.Context(), boundCall("second", "y"), b.begin, func(context.Context, store.OwnTx) (semel.Result, error) {
				began(t, r, b, boundCall("third", "x"), semel.InFlight)
				return data("x"), nil
			})
			must(t, err)
			began(t, r, b, boundCall("first", "x"), semel.Replay) // of its refusal
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
