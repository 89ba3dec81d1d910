package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func confirming(p semel.ConfirmationPolicy) semel.Operation {
	return semel.Operation{Confirmation: &p}
}

// ask expects to be asked for a confirmation, and returns the token.
func ask(t *testing.T, e *semel.Engine, c semel.Call) string {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	wantCode(t, err, semel.CodeConfirmationRequired)
	if ans.Challenge == nil || len(ans.Challenge.Token) != 43 || ans.Attempt != nil {
		t.Fatalf("got %+v", ans)
	}
	return ans.Challenge.Token
}

func with(c semel.Call, token string) semel.Call {
	c.Confirm = token
	return c
}

// refused expects that a delivery is not confirmed.
func refused(t *testing.T, e *semel.Engine, c semel.Call) {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	if wantCode(t, err, semel.CodeConfirmationRefused); ans.Attempt != nil || ans.Challenge != nil {
		t.Fatalf("got %+v", ans)
	}
}

func TestAConfirmedCallRunsOnceAndIsNotAskedAgain(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-X.2", "IDS-X.3", "IDS-XIII.6")
	inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
		runs := 0
		do := func(c semel.Call) (semel.Answer, error) {
			return r.Do(t.Context(), c, func(context.Context, semel.Execution) (semel.Result, error) { runs++; return data("done"), nil })
		}
		_, err := do(call("k"))
		wantCode(t, err, semel.CodeConfirmationRequired)
		token := ask(t, r.Engine, call("k"))
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		if runs != 0 || rec.State != semel.Failed || rec.Disposition != semel.DispositionAborted || len(rec.Confirmation.Tokens) != 2 {
			t.Errorf("%d runs before it was confirmed; the record: %+v", runs, rec)
		}
		ans, err := do(with(call("k"), token))
		if must(t, err); ans.Decision != semel.Execute || runs != 1 {
			t.Errorf("got %s, %d runs", ans.Decision, runs)
		}
		for _, c := range []semel.Call{call("k"), with(call("k"), token), with(call("k"), "wrong")} {
			ans, err := do(c)
			if must(t, err); ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "done" || runs != 1 {
				t.Errorf("got %s, %d runs", ans.Decision, runs)
			}
		}
		if rec := ans.Record; rec.Confirmation.ConfirmedAt == 0 || len(rec.Confirmation.Tokens) != 0 || rec.Confirmation.Principal != "p" {
			t.Errorf("kept %+v", rec.Confirmation)
		}
		refused(t, r.Engine, with(call("other"), token)) // the key is another
	})
}

func TestATokenIsBoundToItsCall(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-XIII.6")
	p := semel.ConfirmationPolicy{MaxTries: 100}
	shared := confirming(p)
	shared.Name, shared.Share = "shared", semel.ShareTenant
	shared.Authorize = func(context.Context, semel.Call, semel.Record) error { return nil }
	second := confirming(p)
	second.Name = "second"
	inBubbleWith(t, semel.Options{Operations: []semel.Operation{shared, second}}, confirming(p), func(t *testing.T, r *rig) {
		for _, op := range []string{"op", "shared"} {
			mine := call("k")
			mine.Operation, mine.Attributes = op, store.Attributes{semel.AttributeCommandID: "c1"}
			token := ask(t, r.Engine, mine)
			for what, change := range map[string]func(*semel.Call){
				"tenant":    func(c *semel.Call) { c.Tenant = "other" },
				"principal": func(c *semel.Call) { c.Principal = "other" },
				"operation": func(c *semel.Call) { c.Operation = "second" },
				"key":       func(c *semel.Call) { c.Key = "other" },
				"command":   func(c *semel.Call) { c.Attributes = store.Attributes{semel.AttributeCommandID: "c2"} },
			} {
				c := with(mine, token)
				change(&c)
				if _, err := r.Begin(t.Context(), c); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRefused}) {
					t.Errorf("%s: with another %s: got %v", op, what, err)
				}
				if op == "op" { // asked for a token of its own, it still can't use this one
					ask(t, r.Engine, with(c, ""))
					refused(t, r.Engine, c)
				}
			}
			c := with(mine, token)
			c.Fingerprint = payload("y")
			decides(t, r.Engine, c, semel.Conflict)
			begin(t, r.Engine, with(mine, token)) // and all that has not spoiled it
		}
	})
}

// What a token is bound to is in its digest, so that a record which was changed by
// other means than the engine does not lend it to another.
func TestADigestBindsATokenToItsPrincipal(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-XIII.6")
	op := confirming(semel.ConfirmationPolicy{})
	op.Share = semel.ShareTenant
	op.Authorize = func(context.Context, semel.Call, semel.Record) error { return nil }
	inBubble(t, op, func(t *testing.T, r *rig) {
		token := ask(t, r.Engine, call("k"))
		shared := id("k")
		shared.Principal = ""
		for i, to := range []string{"other", "p"} {
			rec, err := r.store.Get(t.Context(), shared)
			must(t, err)
			c := *rec.Confirmation
			c.Principal = to
			w := store.Write{Record: new(*rec), Expect: rec.Revision}
			w.Record.Confirmation = &c
			w.Record.Revision = store.Revision{byte(i + 1)}
			if _, applied, err := r.store.Apply(t.Context(), w); err != nil || !applied {
				t.Fatal(applied, err)
			}
			by := with(call("k"), token)
			if by.Principal = to; to == "p" {
				begin(t, r.Engine, by)
			} else {
				refused(t, r.Engine, by)
			}
		}
	})
}

func TestATokenIsUsedOnce(t *testing.T) {
	clause.Proves(t, "IDS-X.2", "IDS-XIII.6")
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local store %t", local), func(t *testing.T) {
			for round := range rounds {
				var st semel.Store = memstore.New()
				if !local {
					st, _ = faultstore.New(st, nil)
				}
				engines := make([]*semel.Engine, 3)
				for i := range engines {
					op := confirming(semel.ConfirmationPolicy{})
					op.Name = "op"
					e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{op}})
					must(t, err)
					engines[i] = e
				}
				token := ask(t, engines[0], call("k"))
				var executed, other atomic.Int32
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						ans, err := engines[i%3].Begin(t.Context(), with(call("k"), token))
						switch {
						case err == nil && ans.Decision == semel.Execute:
							executed.Add(1)
						case err == nil && ans.Decision == semel.InFlight:
							other.Add(1)
						default:
							t.Errorf("round %d: %s, %v", round, ans.Decision, err)
						}
					})
				}
				wg.Wait()
				if executed.Load() != 1 || other.Load() != 49 {
					t.Fatalf("round %d: %d deliveries executed", round, executed.Load())
				}
			}
		})
	}
}

func TestATokenIsShortLived(t *testing.T) {
	clause.Proves(t, "IDS-X.2")
	const most = 5 * time.Minute // whatever the constants of the package say
	if semel.MaxConfirmationTTL != most {
		t.Errorf("a token may live for %v", semel.MaxConfirmationTTL)
	}
	inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
		early, old := ask(t, r.Engine, call("early")), ask(t, r.Engine, call("old"))
		pass(most - time.Second)
		must(t, begin(t, r.Engine, with(call("early"), early)).Complete(t.Context(), data("x")))
		pass(time.Second)
		refused(t, r.Engine, with(call("old"), old))
	})
	for _, ttl := range []time.Duration{most + 1, 24 * time.Hour, -1} {
		op := confirming(semel.ConfirmationPolicy{TTL: ttl})
		op.Name = "op"
		wantCode(t, op.Validate(), semel.CodeInvalidOperation)
	}
	inBubble(t, confirming(semel.ConfirmationPolicy{TTL: time.Minute}), func(t *testing.T, r *rig) {
		first := ask(t, r.Engine, call("k"))
		pass(59 * time.Second)
		second := ask(t, r.Engine, call("k"))
		pass(time.Second)
		refused(t, r.Engine, with(call("k"), first))
		pass(58 * time.Second)
		a := begin(t, r.Engine, with(call("k"), second))
		must(t, a.Complete(t.Context(), data("x")))

		late := ask(t, r.Engine, call("late"))
		pass(time.Minute)
		refused(t, r.Engine, with(call("late"), late))
		n, err := r.Sweep(t.Context())
		if must(t, err); n.Purged != 1 {
			t.Errorf("what nobody has confirmed is not purged: %+v", n)
		}
		if _, err := r.Lookup(t.Context(), id("late")); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWrongConfirmationsAreLimited(t *testing.T) {
	clause.Proves(t, "IDS-XIII.6")
	inBubble(t, confirming(semel.ConfirmationPolicy{TTL: time.Minute, MaxTries: 3}), func(t *testing.T, r *rig) {
		token := ask(t, r.Engine, call("k"))
		for range 3 {
			refused(t, r.Engine, with(call("k"), "wrong"))
		}
		pass(30 * time.Second)
		for _, c := range []semel.Call{with(call("k"), token), call("k")} { // neither the right one nor a new one
			_, err := r.Begin(t.Context(), c)
			if e := wantCode(t, err, semel.CodeConfirmationRefused); e.RetryAfter != 30*time.Second {
				t.Errorf("got %+v", e)
			}
		}
		pass(30 * time.Second)
		begin(t, r.Engine, with(call("k"), ask(t, r.Engine, call("k"))))
	})
}

func TestOthersDoNotSpoilAConfirmation(t *testing.T) {
	op := confirming(semel.ConfirmationPolicy{MaxTries: 2})
	op.Share, op.OnFailure = semel.ShareTenant, semel.RetryFailure
	op.Authorize = func(context.Context, semel.Call, semel.Record) error { return nil }
	inBubble(t, op, func(t *testing.T, r *rig) {
		other := call("k")
		other.Principal = "other"
		token := ask(t, r.Engine, call("k"))
		for range 5 {
			refused(t, r.Engine, with(other, "wrong"))
			refused(t, r.Engine, other)
		}
		a := begin(t, r.Engine, with(call("k"), token))
		must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		refused(t, r.Engine, other) // nor do they run what another has confirmed
		begin(t, r.Engine, call("k"))
	})
}

func TestAConfirmedCallThatMayRunAgainIsNotAskedAgain(t *testing.T) {
	clause.Proves(t, "IDS-X.3", "IDS-X.4")
	for name, end := range map[string]func(t *testing.T, r *rig, a *semel.Attempt){
		"failed": func(t *testing.T, _ *rig, a *semel.Attempt) {
			must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		},
		"aborted":   func(t *testing.T, _ *rig, a *semel.Attempt) { must(t, a.Abort(t.Context(), store.Failure{})) },
		"abandoned": func(_ *testing.T, _ *rig, a *semel.Attempt) { a.Detach(); pass(time.Minute) },
		"held": func(t *testing.T, r *rig, a *semel.Attempt) {
			must(t, a.Hold(t.Context(), ""))
			decides(t, r.Engine, with(call("k"), "wrong"), semel.Held)
			_, err := r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted}, "")
			must(t, err)
		},
	} {
		for _, proved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by a further proof: %v", name, proved), func(t *testing.T) {
				var policy semel.ConfirmationPolicy
				proofs := 0
				if proved {
					policy.StepUp = func(context.Context, semel.Call) error { proofs++; return nil }
				}
				op := confirming(policy)
				op.OnFailure, op.OnAbandoned, op.Lease = semel.RetryFailure, semel.RetryAbandoned, 3*time.Second
				inBubble(t, op, func(t *testing.T, r *rig) {
					a := begin(t, r.Engine, with(call("k"), ask(t, r.Engine, call("k"))))
					number := a.Number()
					if number != 2 {
						t.Errorf("attempt %d", number)
					}
					end(t, r, a)
					if b := begin(t, r.Engine, call("k")); b.Number() != number+1 {
						t.Errorf("attempt %d", b.Number())
					}
					if proved && proofs != 1 {
						t.Errorf("the proof was looked at %d times", proofs)
					}
				})
			})
		}
	}
}

// An operation asks for confirmation from some day on. What its calls did before is
// not forgotten with the token.
func TestACallTriedBeforeConfirmationKeepsItsLedger(t *testing.T) {
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		calls := 0
		charge := func(x semel.Execution) error {
			_, err := semel.Effect(t.Context(), x, "charge", func(context.Context, string) (int, error) { calls++; return 1, nil })
			return err
		}
		a := begin(t, r.Engine, call("k"))
		must(t, charge(a))
		must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		op := confirming(semel.ConfirmationPolicy{})
		op.Name, op.OnFailure = "op", semel.RetryFailure
		must(t, r.Register(op))
		ask(t, r.Engine, call("k"))
		pass(time.Hour)
		_, err := r.Sweep(t.Context())
		must(t, err)
		b := begin(t, r.Engine, with(call("k"), ask(t, r.Engine, call("k"))))
		if must(t, charge(b)); calls != 1 {
			t.Errorf("the effect was called %d times", calls)
		}
	})
}

func TestAClaimThatIsLostDoesNotUseTheTokenUp(t *testing.T) {
	clause.Proves(t, "IDS-X.2", "IDS-XIII.6")
	for _, form := range append(forms, faultstore.Hang) {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
				token := ask(t, r.Engine, call("k"))
				r.faults.Next(faultstore.Apply, form, 1000)
				_, err := r.Begin(t.Context(), with(call("k"), token))
				wantCode(t, err, semel.CodeStoreUnavailable)
				r.faults.Heal()
				pass(10 * time.Second)
				// Whether the claim arrived or not: the caller was told that nothing
				// ran, and runs it once now.
				a := begin(t, r.Engine, with(call("k"), token))
				must(t, a.Complete(t.Context(), data("x")))
				decides(t, r.Engine, with(call("k"), token), semel.Replay)
			})
		})
	}
}

func TestStepUp(t *testing.T) {
	clause.Proves(t, "IDS-X.4")
	wrong := errors.New("wrong code")
	policy := func(ask *atomic.Int32) semel.ConfirmationPolicy {
		used := &sync.Map{}
		return semel.ConfirmationPolicy{MaxTries: 3, StepUp: func(_ context.Context, c semel.Call) error {
			ask.Add(1)
			<-time.After(100 * time.Millisecond)
			if _, again := used.LoadOrStore(c.StepUp, true); again || c.StepUp != "123456" {
				return wrong
			}
			return nil
		}}
	}
	prove := func(c semel.Call, code string) semel.Call { c.StepUp = code; return c }

	t.Run("a wrong proof is refused and counted, and a right one confirms", func(t *testing.T) {
		var asked atomic.Int32
		inBubble(t, confirming(policy(&asked)), func(t *testing.T, r *rig) {
			token := ask(t, r.Engine, call("k"))
			refused(t, r.Engine, prove(with(call("k"), "wrong"), "123456"))
			if asked.Load() != 0 {
				t.Error("the proof was looked at without the token")
			}
			_, err := r.Begin(t.Context(), prove(with(call("k"), token), "000000"))
			if wantCode(t, err, semel.CodeConfirmationRefused); !errors.Is(err, wrong) {
				t.Errorf("got %v", err)
			}
			a := begin(t, r.Engine, prove(with(call("k"), token), "123456"))
			if c := a.Record().Confirmation; c.Tries != 3 || asked.Load() != 2 {
				t.Errorf("%d tries counted, asked %d times", c.Tries, asked.Load())
			}
		})
	})
	t.Run("guesses that arrive together are limited too", func(t *testing.T) {
		var asked atomic.Int32
		inBubble(t, confirming(policy(&asked)), func(t *testing.T, r *rig) {
			token := ask(t, r.Engine, call("k"))
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					if ans, err := r.Begin(t.Context(), prove(with(call("k"), token), fmt.Sprint(i))); err == nil && ans.Attempt != nil {
						t.Errorf("guess %d executes", i)
					}
				})
			}
			wg.Wait()
			if n := asked.Load(); n != 3 {
				t.Errorf("%d guesses were looked at, not 3", n)
			}
		})
	})
	t.Run("a replay and a duplicate in flight ask for none, whatever they bring", func(t *testing.T) {
		var asked atomic.Int32
		inBubble(t, confirming(policy(&asked)), func(t *testing.T, r *rig) {
			token := ask(t, r.Engine, call("k"))
			a := begin(t, r.Engine, prove(with(call("k"), token), "123456"))
			again := []semel.Call{call("k"), with(call("k"), token), prove(with(call("k"), token), "123456"), prove(with(call("k"), "other"), "000000")}
			for _, c := range again {
				decides(t, r.Engine, c, semel.InFlight)
			}
			must(t, a.Complete(t.Context(), data("x")))
			for _, c := range again {
				decides(t, r.Engine, c, semel.Replay)
			}
			if c := a.Record().Confirmation; asked.Load() != 1 || c.Tries != 1 {
				t.Errorf("%d tries counted, asked %d times", c.Tries, asked.Load())
			}
		})
	})
	t.Run("a proof that can be used once is not lost to a duplicate", func(t *testing.T) {
		var asked, executed atomic.Int32
		inBubble(t, confirming(policy(&asked)), func(t *testing.T, r *rig) {
			token := ask(t, r.Engine, call("k"))
			for range 3 {
				go func() {
					if ans, err := r.Begin(t.Context(), prove(with(call("k"), token), "123456")); err == nil && ans.Attempt != nil {
						executed.Add(1)
					}
				}()
			}
			pass(time.Second)
			synctest.Wait()
			if executed.Load() != 1 {
				t.Errorf("%d deliveries execute", executed.Load())
			}
		})
	})
}

func TestConfirmationAndTransactions(t *testing.T) {
	inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
		b := newBase(r.store)
		_, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
		wantCode(t, err, semel.CodeUnsupported)
		b.wantRows(t)
	})
	op := confirming(semel.ConfirmationPolicy{})
	op.Name, op.Class = "op", semel.ReadOnly
	wantCode(t, op.Validate(), semel.CodeInvalidOperation)
}

// versions counts what is written of a record.
type versions struct {
	*memstore.Store
	n atomic.Int32
}

func (v *versions) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	v.n.Add(1)
	return v.Store.Apply(ctx, w)
}

func TestAskingForConfirmationIsLimited(t *testing.T) {
	clause.Proves(t, "IDS-XV.3")
	for _, c := range []struct {
		name         string
		record, user semel.Rate
		burst        int
		after        time.Duration
	}{
		{"by a rate of its own", semel.Rate{}, semel.Rate{}, 20, 5 * time.Second},
		{"by PerRecord", semel.Rate{PerSecond: 0.1, Burst: 3}, semel.Rate{}, 3, 10 * time.Second},
		{"by PerPrincipal", semel.Rate{}, semel.Rate{PerSecond: 0.1, Burst: 4}, 4, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &versions{Store: memstore.New()}
				op := confirming(semel.ConfirmationPolicy{MaxTries: 1000})
				op.Name, op.PerRecord, op.PerPrincipal = "op", c.record, c.user
				e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{op}})
				must(t, err)
				for range c.burst - 1 {
					ask(t, e, call("k"))
				}
				refused(t, e, with(call("k"), "wrong"))
				written := st.n.Load()
				for range 1000 {
					for _, c := range []semel.Call{call("k"), with(call("k"), "wrong")} {
						if ans := decides(t, e, c, semel.Throttled); ans.RetryAfter <= 0 || ans.Challenge != nil || ans.Record == nil {
							t.Fatalf("got %+v", ans)
						}
					}
				}
				if n := st.n.Load() - written; n != 0 {
					t.Errorf("%d writes of deliveries that were throttled", n)
				}
				pass(c.after)
				token := ask(t, e, call("k"))
				decides(t, e, call("k"), semel.Throttled)
				if c.user.Burst > 0 {
					decides(t, e, call("another"), semel.Throttled)
				} else {
					ask(t, e, call("another"))
				}
				begin(t, e, with(call("k"), token)) // a good token is always welcome
				must(t, e.Close(context.Background()))
			})
		})
	}
}
