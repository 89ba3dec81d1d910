package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

const hour = time.Hour

// withQuotas runs a test on each way to begin a call: on a store that is asked over a
// network, on one that is not, and in a transaction.
func withQuotas(t *testing.T, q semel.Quotas, op semel.Operation, body func(t *testing.T, r *rig, do doing)) {
	t.Helper()
	t.Run("remote", func(t *testing.T) {
		inBubbleWith(t, semel.Options{Quotas: q}, op, func(t *testing.T, r *rig) { body(t, r, doing{r.Engine.Do}) })
	})
	t.Run("local", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			op := op
			op.Name = "op"
			e, err := semel.New(st, &semel.Options{Quotas: q, Operations: []semel.Operation{op}})
			must(t, err)
			body(t, &rig{Engine: e, store: st}, doing{e.Do})
			must(t, e.Close(context.Background()))
		})
	})
	t.Run("in a transaction", func(t *testing.T) {
		inBubbleWith(t, semel.Options{Quotas: q}, op, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			body(t, r, doing{func(ctx context.Context, c semel.Call, fn handler) (semel.Answer, error) {
				return r.DoTx(ctx, c, b.begin, func(ctx context.Context, _ store.OwnTx) (semel.Result, error) { return fn(ctx, nil) })
			}})
		})
	})
}

type handler = func(context.Context, semel.Execution) (semel.Result, error)

// doing is a way to run a call.
type doing struct {
	run func(context.Context, semel.Call, handler) (semel.Answer, error)
}

// keeps runs a call that keeps n bytes, and expects a decision.
func (d doing) keeps(t *testing.T, c semel.Call, n int, want semel.Decision) semel.Answer {
	t.Helper()
	ans, err := d.run(t.Context(), c, func(context.Context, semel.Execution) (semel.Result, error) {
		return data(strings.Repeat("x", n)), nil
	})
	if ans.Decision != want {
		t.Fatalf("call %s: %s, %v; want %s", c.Key, ans.Decision, err, want)
	}
	return ans
}

// refused expects a new call to be refused by a limit, and to be told when it is not.
func (d doing) refused(t *testing.T, c semel.Call, by semel.Limit) {
	t.Helper()
	ans := d.keeps(t, c, 1, semel.Throttled)
	if ans.Limit != by || ans.RetryAfter <= 0 || ans.Record.ID.Key != c.Key || ans.Record.State != 0 {
		t.Fatalf("throttled by %q for %v: %+v", ans.Limit, ans.RetryAfter, ans.Record)
	}
	if e := wantCode(t, ans.Err(), semel.CodeThrottled); !strings.Contains(e.Message, strings.Split(string(by), "_")[1]) && !strings.Contains(e.Message, "new calls") {
		t.Errorf("told: %s", e.Message)
	}
	pass(ans.RetryAfter - 1)
	d.keeps(t, c, 1, semel.Throttled)
	pass(1)
	d.keeps(t, c, 1, semel.Execute)
}

// A caller that has used up a quota begins no new call until it is told to, and is
// served everything else.
func TestQuotaOfRecords(t *testing.T) {
	clause.Proves(t, "IDS-XV.3")
	q := semel.Quotas{Window: hour, PrincipalRecords: 3}
	withQuotas(t, q, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
		for i := range 3 {
			do.keeps(t, call(fmt.Sprint(i)), 10, semel.Execute)
		}
		for range 10 { // duplicates use nothing
			if ans := do.keeps(t, call("0"), 0, semel.Replay); len(ans.Record.Result.Data) != 10 {
				t.Fatal("another answer")
			}
		}
		other := call("0")
		other.Fingerprint = payload("other")
		do.keeps(t, other, 0, semel.Conflict)
		do.refused(t, call("new"), semel.LimitPrincipalRecords)

		pass(hour)
		for i := range 3 {
			do.keeps(t, call(fmt.Sprint("later", i)), 10, semel.Execute)
		}
		do.refused(t, call("newer"), semel.LimitPrincipalRecords)
	})
}

// A call that may run again is not new, and one that runs over its quota is told of.
func TestQuotaServesCallsThatAreNotNew(t *testing.T) {
	q := semel.Quotas{Window: hour, PrincipalRecords: 2, PrincipalBytes: 1000}
	inBubbleWith(t, semel.Options{Quotas: q}, semel.Operation{Window: 10 * hour}, func(t *testing.T, r *rig) {
		again := begin(t, r.Engine, call("again"))
		must(t, again.Abort(t.Context(), store.Failure{}))
		running, held := begin(t, r.Engine, call("running")), begin(t, r.Engine, call("held"))
		must(t, held.Hold(t.Context(), "who knows"))
		decides(t, r.Engine, call("new"), semel.Throttled)
		decides(t, r.Engine, call("running"), semel.InFlight)
		decides(t, r.Engine, call("held"), semel.Held)
		// Its outcome is recorded, however much that is.
		must(t, running.Complete(t.Context(), data(strings.Repeat("x", 1000))))
		if rec := decides(t, r.Engine, call("running"), semel.Replay).Record; len(rec.Result.Data) != 1000 {
			t.Errorf("%d bytes are kept", len(rec.Result.Data))
		}
		must(t, begin(t, r.Engine, call("again")).Complete(t.Context(), data("done")))
	})
	// One that was forgotten is new.
	inBubbleWith(t, semel.Options{Quotas: semel.Quotas{Window: 10 * hour, PrincipalRecords: 1}}, semel.Operation{Window: hour}, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Complete(t.Context(), data("x")))
		pass(hour)
		decides(t, r.Engine, call("k"), semel.Throttled)
	})
}

// What callers and handlers put into records counts, and what they have beyond the
// quota they owe.
func TestQuotaOfBytes(t *testing.T) {
	q := semel.Quotas{Window: hour, PrincipalBytes: ratelimit.Overhead + 1000}
	withQuotas(t, q, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
		do.keeps(t, call("a"), 998, semel.Execute) // and the key
		do.keeps(t, call("b"), 1000, semel.Execute)
		ans := do.keeps(t, call("c"), 1, semel.Throttled)
		if owed := hour + hour/(ratelimit.Overhead+1000); ans.RetryAfter < owed-time.Second || ans.RetryAfter > owed+time.Second {
			t.Errorf("told to wait for %v, where %v are owed", ans.RetryAfter, owed)
		}
		do.keeps(t, call("b"), 0, semel.Replay)
		do.refused(t, call("c"), semel.LimitPrincipalBytes)
	})
	for name, write := range map[string]func(t *testing.T, a *semel.Attempt){
		"a failure": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Reject(t.Context(), store.Failure{Message: strings.Repeat("x", 1000)}, semel.Result{}))
		},
		"a message": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Send(semel.Message{Name: "m", Destination: "d", Payload: make([]byte, 1000)}))
			must(t, a.Complete(t.Context(), semel.Result{}))
		},
		"an effect": func(t *testing.T, a *semel.Attempt) { confirm(t, a, "effect", 1000) },
		"a reason":  func(t *testing.T, a *semel.Attempt) { must(t, a.Hold(t.Context(), strings.Repeat("x", 1000))) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, semel.Options{Quotas: q}, semel.Operation{}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				write(t, a)
				decides(t, r.Engine, call("new"), semel.Throttled)
			})
		})
	}
	t.Run("attributes", func(t *testing.T) {
		inBubbleWith(t, semel.Options{Quotas: q}, semel.Operation{}, func(t *testing.T, r *rig) {
			c := call("k")
			c.Attributes = store.Attributes{"a": strings.Repeat("x", 500), "b": strings.Repeat("x", 500)}
			begin(t, r.Engine, c)
			decides(t, r.Engine, call("new"), semel.Throttled)
		})
	})
}

// A call that proved to be nothing stays stored, so its bytes count, with what its record takes.
func TestQuotaOfBytesCountsWhatCameToNothing(t *testing.T) {
	q := semel.Quotas{Window: hour, PrincipalRecords: 10, PrincipalBytes: 10 * (ratelimit.Overhead + 1)}
	withQuotas(t, q, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
		for i := range 10 {
			must(t, begin(t, r.Engine, call(fmt.Sprint(i))).Abort(t.Context(), store.Failure{}))
		}
		do.refused(t, call("k"), semel.LimitPrincipalBytes)
	})
}

// A call that proved to be nothing is given back, and counts again if it runs again.
func TestQuotaGivesBackWhatWasNothing(t *testing.T) {
	q := semel.Quotas{Window: 100 * hour, PrincipalRecords: 3, TenantRecords: 3}
	ends := map[string]func(a *semel.Attempt) error{
		"aborted": func(a *semel.Attempt) error { return a.Abort(t.Context(), store.Failure{}) },
		"abandoned to be settled as aborted": func(a *semel.Attempt) error {
			return a.Hold(t.Context(), "who knows")
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, semel.Options{Quotas: q}, semel.Operation{}, func(t *testing.T, r *rig) {
				for i := range 100 {
					c := call(fmt.Sprint("nothing", i))
					a := begin(t, r.Engine, c)
					must(t, end(a))
					if a.Record().State == semel.Processing {
						_, err := r.Settle(t.Context(), a.ID(), semel.Settlement{Outcome: semel.DispositionAborted}, "nothing was sent")
						must(t, err)
					}
				}
				for i := range 3 { // each of them counts once, however often it runs
					again := call(fmt.Sprint("nothing", i))
					must(t, begin(t, r.Engine, again).Abort(t.Context(), store.Failure{}))
					must(t, begin(t, r.Engine, again).Complete(t.Context(), data("x")))
				}
				decides(t, r.Engine, call("new"), semel.Throttled)
			})
		})
	}
	t.Run("but not what was refused for good, or awaits its confirmation", func(t *testing.T) {
		inBubbleWith(t, semel.Options{Quotas: q, Operations: []semel.Operation{{Name: "asks", Confirmation: &semel.ConfirmationPolicy{}}}}, semel.Operation{}, func(t *testing.T, r *rig) {
			for i := range 2 {
				must(t, begin(t, r.Engine, call(fmt.Sprint(i))).Reject(t.Context(), store.Failure{}, data("x")))
			}
			asks := call("k")
			asks.Operation = "asks"
			ans, err := r.Begin(t.Context(), asks)
			wantCode(t, err, semel.CodeConfirmationRequired)
			decides(t, r.Engine, call("new"), semel.Throttled)
			asks.Confirm = ans.Challenge.Token
			must(t, begin(t, r.Engine, asks).Abort(t.Context(), store.Failure{}))
			begin(t, r.Engine, call("new"))
			decides(t, r.Engine, call("newer"), semel.Throttled)
		})
	})
}

// Nobody's quota is used by others, but for that of their tenant by all of them.
func TestQuotasAreNotShared(t *testing.T) {
	clause.Proves(t, "IDS-XV.3")
	with := func(c semel.Call, tenant, principal string) semel.Call {
		c.Tenant, c.Principal = tenant, principal
		return c
	}
	for name, quotas := range map[string]struct{ principal, tenant semel.Quotas }{
		"records": {semel.Quotas{Window: hour, PrincipalRecords: 1}, semel.Quotas{Window: hour, TenantRecords: 1}},
		"bytes":   {semel.Quotas{Window: hour, PrincipalBytes: 2}, semel.Quotas{Window: hour, TenantBytes: 2}},
	} {
		t.Run(name+" of principals", func(t *testing.T) {
			withQuotas(t, quotas.principal, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
				do.keeps(t, call("mine"), 9, semel.Execute)
				do.keeps(t, call("new"), 9, semel.Throttled)
				do.keeps(t, with(call("new"), "t", "other"), 9, semel.Execute)
				do.keeps(t, with(call("new"), "other", "p"), 9, semel.Execute)
				do.keeps(t, with(call("new"), "t", ""), 9, semel.Execute)
				bound := with(call("bound"), "t", "")
				bound.BoundTo = "credential"
				do.keeps(t, bound, 9, semel.Execute)
				bound.Key = "another"
				do.keeps(t, bound, 9, semel.Throttled)
			})
		})
		t.Run(name+" of tenants", func(t *testing.T) {
			withQuotas(t, quotas.tenant, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
				do.keeps(t, call("mine"), 9, semel.Execute)
				do.keeps(t, with(call("new"), "t", "other"), 9, semel.Throttled)
				do.keeps(t, with(call("new"), "other", "p"), 9, semel.Execute)
			})
		})
	}
	t.Run("where keys are shared", func(t *testing.T) {
		anyone := func(context.Context, semel.Call, semel.Record) error { return nil }
		op := semel.Operation{Share: semel.ShareTenant, Authorize: anyone}
		withQuotas(t, semel.Quotas{Window: hour, PrincipalRecords: 1}, op, func(t *testing.T, r *rig, do doing) {
			do.keeps(t, call("mine"), 9, semel.Execute)
			do.keeps(t, call("new"), 9, semel.Throttled)
			do.keeps(t, with(call("new"), "t", "other"), 9, semel.Execute)
		})
	})
	t.Run("as the program accounts", func(t *testing.T) {
		q := semel.Quotas{Window: hour, TenantRecords: 1, Account: func(_ context.Context, rec *semel.Record) (string, string) {
			return "strangers", rec.Principal
		}}
		withQuotas(t, q, semel.Operation{}, func(t *testing.T, r *rig, do doing) {
			do.keeps(t, call("mine"), 9, semel.Execute)
			do.keeps(t, with(call("new"), "other", "other"), 9, semel.Throttled)
		})
	})
}

// Of several quotas that are used up the caller is told of the one that lasts longest,
// and whoever observes the engine is too.
func TestTheLongestLimitIsTold(t *testing.T) {
	var seen []semel.Limit
	opts := semel.Options{
		Quotas: semel.Quotas{Window: hour, PrincipalRecords: 2, TenantRecords: 1},
		Events: &semel.Events{Decided: func(ev semel.Decided) {
			if ev.Decision == semel.Throttled {
				seen = append(seen, ev.Limit)
			}
		}},
	}
	op := semel.Operation{PerRecord: semel.Rate{PerSecond: 0.001, Burst: 1}}
	inBubbleWith(t, opts, op, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Complete(t.Context(), data("x")))
		if ans := decides(t, r.Engine, call("new"), semel.Throttled); ans.Limit != semel.LimitTenantRecords || ans.RetryAfter != hour {
			t.Errorf("throttled by %s for %v", ans.Limit, ans.RetryAfter)
		}
		decides(t, r.Engine, call("k"), semel.Replay)
		decides(t, r.Engine, call("k"), semel.Throttled)
		if want := []semel.Limit{semel.LimitTenantRecords, semel.LimitDuplicates}; !slices.Equal(seen, want) {
			t.Errorf("told of %v, not of %v", seen, want)
		}
	})
}

// A write whose answer was lost counts once, and one that was never made not at all.
func TestQuotaCountsWhatIsStored(t *testing.T) {
	q := semel.Quotas{Window: hour, PrincipalRecords: 2}
	synctest.Test(t, func(t *testing.T) {
		st := &busyStore{Store: memstore.New()}
		e, err := semel.New(st, &semel.Options{Quotas: q, Operations: []semel.Operation{{Name: "op"}}})
		must(t, err)
		st.busy.Store(true)
		for i := range 10 {
			_, err := e.Begin(t.Context(), call(fmt.Sprint("refused", i)))
			wantCode(t, err, semel.CodeStoreUnavailable)
		}
		st.busy.Store(false)
		begin(t, e, call("a"))
		begin(t, e, call("b"))
		decides(t, e, call("c"), semel.Throttled)
		must(t, e.Close(t.Context()))
	})
}

func TestQuotaCountsAWriteOnceWhoseAnswerIsLost(t *testing.T) {
	q := semel.Quotas{Window: hour, PrincipalRecords: 2, TenantBytes: 2*ratelimit.Overhead + 102}
	for _, form := range []faultstore.Form{faultstore.NotApplied, faultstore.Applied} {
		inBubbleWith(t, semel.Options{Quotas: q}, semel.Operation{}, func(t *testing.T, r *rig) {
			r.faults.Next(faultstore.Apply, form, 1)
			a := begin(t, r.Engine, call("a"))
			r.faults.Next(faultstore.Apply, form, 1)
			must(t, a.Complete(t.Context(), data(strings.Repeat("x", 100))))
			begin(t, r.Engine, call("b"))
			if ans := decides(t, r.Engine, call("c"), semel.Throttled); ans.Limit != semel.LimitPrincipalRecords || ans.RetryAfter > hour/2 {
				t.Errorf("form %s: throttled by %s for %v", form, ans.Limit, ans.RetryAfter)
			}
		})
	}
}

// What the engine does for its own sake counts, but nothing keeps it from being done.
func TestQuotaDoesNotKeepCallsFromBeingUndone(t *testing.T) {
	opts := semel.Options{
		Quotas: semel.Quotas{Window: hour, PrincipalRecords: 1}, Operations: []semel.Operation{{Name: "undo"}},
	}
	undo := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return data("undone"), nil }
	inBubbleWith(t, opts, semel.Operation{Compensation: "undo", Compensate: undo}, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Complete(t.Context(), data("x")))
		rec, err := r.Compensate(t.Context(), id("k"), "p", "a slip")
		if err != nil || rec.Compensation.State != store.CompensationDone {
			t.Fatalf("%+v, %v", rec.Compensation, err)
		}
		if ans := decides(t, r.Engine, call("new"), semel.Throttled); ans.RetryAfter != 2*hour {
			t.Errorf("told to wait for %v", ans.RetryAfter)
		}
	})
}

func TestQuotasThatMakeNoSense(t *testing.T) {
	for _, q := range []semel.Quotas{
		{Window: -1}, {Window: 11 * 365 * 24 * hour}, {PrincipalRecords: -1}, {TenantBytes: -1},
	} {
		if _, err := semel.New(memstore.New(), &semel.Options{Quotas: q}); err == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
}

// Whoever keeps a refused payload can have its sender pay for it, once and up to the quota.
func TestRefusedPayloadsAreCharged(t *testing.T) {
	var charge func(int64) bool
	opts := semel.Options{
		Quotas: semel.Quotas{PrincipalBytes: ratelimit.Overhead + 1000},
		Events: &semel.Events{Decided: func(e semel.Decided) {
			if e.Presented != nil {
				charge = e.Presented.Charge
			}
		}},
	}
	inBubbleWith(t, opts, semel.Operation{KeepPayload: true, Window: 48 * hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		must(t, a.Complete(t.Context(), semel.Result{}))
		other := call("k")
		other.Fingerprint, other.Payload = payload("y"), []byte("y")
		decides(t, r.Engine, other, semel.Conflict)
		if !charge(900) || charge(900) {
			t.Error("a quota of 1,000 bytes has room for one payload of 900")
		}
		if !charge(90) {
			t.Error("what is left isn't given")
		}
		pass(24 * hour)
		if decides(t, r.Engine, other, semel.Conflict); charge == nil || !charge(900) {
			t.Error("the quota doesn't refill")
		}
	})
}
