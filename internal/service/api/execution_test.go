package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestExecution(t *testing.T) {
	t.Parallel()
	t.Run("renewing keeps the right beyond the first lease", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		for range 4 {
			w.store.Advance(20 * time.Second)
			r := w.on(x, "shop", "renew", "").want(200).equal("lease_ms", "30000")
			if r.str("lease_until") <= x.str("lease_until") {
				t.Fatalf("the lease was not extended: %s", r.Raw)
			}
		}
		w.replay("shop", "charge", "k").refused(409, "in_flight")
		w.on(x, "shop", "complete", "").want(200)
		w.on(x, "shop", "renew", "").refused(409, "already_ended")
	})

	t.Run("the process that began it does not renew for the holder", func(t *testing.T) {
		w := newWorld(t)
		w.begin("shop", "quick", "k")
		g := w.send("shop", "POST", "/v1/operations/quick/executions", `{"payload":{"amount":1}}`, "Idempotency-Key", "k", "Prefer", "wait=5")
		g.want(201).equal("attempt", "2").equal("record.attempts.0.disposition", `"abandoned"`)
	})

	t.Run("the same end again is harmless, and another one is refused", func(t *testing.T) {
		w := newWorld(t)
		ends := map[string]string{
			"complete": `{"result":{"a":1}}`, "reject": `{"error":{"code":"c","message":"m"},"result":1}`, "fail": `{"error":{"message":"m"}}`, "abort": `{"error":{"message":"m"}}`,
		}
		for end, body := range ends {
			x := w.begin("shop", "charge", end)
			first := w.on(x, "shop", end, body).want(200)
			w.on(x, "shop", end, body).want(200).equal("record.updated_at", strconv.Quote(first.str("record.updated_at")))
			for other, otherBody := range ends {
				if other != end {
					w.on(x, "shop", other, otherBody).refused(409, "already_ended")
				}
			}
			w.on(x, "shop", "hold", `{"reason":"r"}`).refused(409, "already_ended")
			w.on(x, "shop", "effects", `{"name":"e"}`).refused(409, "already_ended")
		}
		x := w.begin("shop", "charge", "other-result")
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
		w.on(x, "shop", "complete", `{"result":2}`).refused(409, "already_ended")
		w.on(x, "shop", "complete", ``).refused(409, "already_ended")
		w.replay("shop", "charge", "other-result").want(200).equal("record.result", "1")
	})

	t.Run("the same end twice at once is one end", func(t *testing.T) {
		w := newWorld(t)
		for i := range 5 {
			x := w.begin("shop", "charge", "k"+strconv.Itoa(i))
			var all sync.WaitGroup
			w.meet(4)
			for range 4 {
				all.Go(func() { w.on(x, "shop", "complete", `{"result":"r"}`).want(200) })
			}
			all.Wait()
		}
	})

	t.Run("of two ends at once one counts", func(t *testing.T) {
		w := newWorld(t)
		for i := range 5 {
			x := w.begin("shop", "charge", "k"+strconv.Itoa(i))
			var won atomic.Int32
			var all sync.WaitGroup
			w.meet(4)
			for n := range 4 {
				all.Go(func() {
					if g := w.on(x, "shop", "complete", `{"result":`+strconv.Itoa(n)+`}`); g.Status == 200 {
						won.Add(1)
					} else {
						g.refused(409, "already_ended")
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Fatalf("%d ends were accepted", won.Load())
			}
		}
	})

	t.Run("holding gives the execution up, and the holder may still know better", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "hold", `{"reason":"timed out"}`).want(200).equal("record.held_reason", `"timed out"`)
		w.on(x, "shop", "hold", `{"reason":"timed out"}`).want(200)
		w.replay("shop", "charge", "k").refused(409, "held")
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
		w.replay("shop", "charge", "k").want(200)
	})

	t.Run("an abandoned execution runs again where that is allowed, and is held elsewhere", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k").equal("on_abandoned", `"hold"`)
		w.on(x, "shop", "abandon", `{}`).refused(400, "invalid_call")
		w.on(x, "shop", "abandon", `{"reason":"no upstream"}`).want(200).equal("record.held_reason", `"no upstream"`)
		w.replay("shop", "charge", "k").refused(409, "held")

		x = w.begin("shop", "retry", "k").equal("on_abandoned", `"retry"`)
		w.on(x, "shop", "abandon", `{"reason":"no upstream"}`).want(200).equal("record.disposition", `"abandoned"`)
		w.on(x, "shop", "abandon", `{"reason":"no upstream"}`).want(200)
		w.on(x, "shop", "complete", "").refused(409, "already_ended")
		w.on(w.begin("shop", "retry", "k"), "shop", "complete", `{"result":2}`).want(200)
		w.on(x, "shop", "abandon", `{"reason":"no upstream"}`).refused(409, "lease_lost")

		// The ledger proves what happened, unless an effect has no result.
		x = w.begin("shop", "mail", "k").equal("on_abandoned", `"retry"`)
		w.on(x, "shop", "effects", `{"name":"send"}`).want(201)
		w.on(x, "shop", "abandon", `{"reason":"no upstream"}`).want(200).equal("record.held_reason", `"no upstream"`)
	})

	t.Run("after a takeover the first holder has lost", func(t *testing.T) {
		w := newWorld(t)
		old := w.begin("shop", "retry", "k")
		w.store.Advance(time.Minute)
		next := w.begin("shop", "retry", "k")
		for _, what := range []string{"complete", "renew", "abort"} {
			w.on(old, "shop", what, "").refused(409, "lease_lost")
		}
		w.on(old, "shop", "effects", `{"name":"e"}`).refused(409, "lease_lost")
		w.on(next, "shop", "complete", `{"result":2}`).want(200)
		w.on(old, "shop", "complete", `{"result":2}`).refused(409, "lease_lost")
	})

	t.Run("what is purged or expired is not found", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "complete", "").want(200)
		w.send("operator", "POST", "/v1/records/"+x.str("record.id")+"/purge", `{"reason":"test"}`).want(204)
		w.on(x, "shop", "complete", "").refused(404, "not_found")
		x = w.begin("shop", "charge", "k")
		w.on(x, "shop", "complete", "").want(200)
		w.store.Advance(25 * time.Hour)
		w.on(x, "shop", "complete", "").refused(404, "not_found")
		w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").refused(404, "not_found")
	})

	t.Run("an execution is only there for who began it", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		s := w.begin("shop", "shared", "k")
		for _, who := range []string{"other", "stranger", "viewer", "operator", "root", "evilroot"} {
			for _, what := range []string{"complete", "renew", "abort"} {
				w.on(x, who, what, "").refused(404, "not_found")
				w.on(s, who, what, "").refused(404, "not_found")
			}
		}
		w.on(x, "nobody", "complete", "").refused(401, "unauthorized")
		w.on(x, "shop", "complete", "").want(200)
		w.on(s, "shop", "complete", "").want(200)
	})

	t.Run("a name that is none is not found, and one with another fence has lost", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		id := x.str("record.id")
		for _, name := range []string{"x", ".", id, id + ".", id + ".x", id + ".0", id + ".-1", id + ".+" + x.numText("fence"), id + ".0" + x.numText("fence"), "AAAA.1", id + ".99999999999999999999"} {
			w.send("shop", "POST", "/v1/executions/"+name+"/complete", "").refused(404, "not_found")
		}
		w.send("shop", "POST", "/v1/executions/"+id+"."+strconv.FormatInt(x.num("fence")+1, 10)+"/complete", "").refused(409, "lease_lost")
	})

	t.Run("when the store does not say whether an end was kept, that is said, and asking again tells", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.breakWrites(errors.New("no answer"))
		if g := w.on(x, "shop", "complete", `{"result":1}`).refused(503, "unknown"); g.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		w.breakWrites(nil)
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
	})
}

func TestEffects(t *testing.T) {
	t.Parallel()
	t.Run("an effect is started, settled, and replayed to a further attempt", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "mail", "k")
		ef := w.on(x, "shop", "effects", `{"name":"send"}`).want(201).equal("state", `"started"`)
		w.on(x, "shop", "effects", `{"name":"send"}`).refused(409, "effect_unknown")
		w.on(x, "shop", "effects", `{"name":"send","not_called":true}`).want(201).equal("key", strconv.Quote(ef.str("key")))
		settled := w.on(x, "shop", "effects/settle", `{"name":"send","state":"confirmed","result":{"id":"m1"}}`).want(200).equal("state", `"confirmed"`)
		w.on(x, "shop", "effects/settle", `{"name":"send","state":"confirmed","result":{"id":"m1"}}`).want(200).equal("settled_at", strconv.Quote(settled.str("settled_at")))
		w.on(x, "shop", "effects/settle", `{"name":"send","state":"refuted"}`).refused(409, "already_ended")
		w.on(x, "shop", "effects", `{"name":"send"}`).want(200).equal("result", `{"id":"m1"}`)

		w.store.Advance(time.Minute)
		x = w.begin("shop", "mail", "k").equal("attempt", "2").equal("record.effects.0.state", `"confirmed"`)
		w.on(x, "shop", "effects", `{"name":"send"}`).want(200).equal("result", `{"id":"m1"}`).equal("key", strconv.Quote(ef.str("key")))
	})

	t.Run("a refusal by the provider is replayed, and what did not happen may be started again", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "effects", `{"name":"a"}`).want(201)
		w.on(x, "shop", "effects/settle", `{"name":"a","state":"refuted","error":{"code":"card","message":"declined"}}`).want(200)
		w.on(x, "shop", "effects", `{"name":"a"}`).want(200).equal("state", `"refuted"`).equal("error", `{"code":"card","message":"declined"}`)
		w.on(x, "shop", "effects", `{"name":"b"}`).want(201)
		w.on(x, "shop", "effects/settle", `{"name":"b","state":"refuted"}`).want(200)
		w.on(x, "shop", "effects", `{"name":"b"}`).want(201)
	})

	t.Run("only declared effects may be started, and only started ones settled", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "mail", "k")
		w.on(x, "shop", "effects", `{"name":"other"}`).refused(400, "invalid_call")
		w.on(x, "shop", "effects", `{"name":"log/7"}`).want(201)
		w.on(x, "shop", "effects/settle", `{"name":"send","state":"confirmed"}`).refused(400, "invalid_call")
		for _, body := range []string{`{"name":""}`, `{}`, `{"name":7}`, `{"name":"` + strings.Repeat("x", 257) + `"}`, `{"name":"send","more":1}`} {
			w.on(x, "shop", "effects", body).refused(400, "invalid_call")
		}
		for _, body := range []string{
			`{"name":"log/7","state":"started"}`, `{"name":"log/7"}`, `{"name":"log/7","state":"confirmed","error":{"message":"m"}}`,
			`{"name":"log/7","state":"refuted","result":1}`, `{"name":"log/7","state":"confirmed","result":1,"result_base64":"AA=="}`,
		} {
			w.on(x, "shop", "effects/settle", body).refused(400, "invalid_call")
		}
	})

	t.Run("of many that start one effect at once, one may call", func(t *testing.T) {
		w := newWorld(t)
		for i := range 5 {
			x := w.begin("shop", "charge", "k"+strconv.Itoa(i))
			var started atomic.Int32
			var all sync.WaitGroup
			w.meet(6)
			for range 6 {
				all.Go(func() {
					if g := w.on(x, "shop", "effects", `{"name":"e"}`); g.Status == 201 {
						started.Add(1)
					} else {
						g.refused(409, "effect_unknown")
					}
				})
			}
			all.Wait()
			if started.Load() != 1 {
				t.Fatalf("%d callers may call", started.Load())
			}
		}
	})

	t.Run("of two findings at once one counts", func(t *testing.T) {
		w := newWorld(t)
		for i := range 5 {
			x := w.begin("shop", "charge", "k"+strconv.Itoa(i))
			w.on(x, "shop", "effects", `{"name":"e"}`).want(201)
			var told atomic.Int32
			var all sync.WaitGroup
			w.meet(4)
			for n := range 4 {
				all.Go(func() {
					if g := w.on(x, "shop", "effects/settle", `{"name":"e","state":"confirmed","result":`+strconv.Itoa(n)+`}`); g.Status == 200 {
						told.Add(1)
					} else {
						g.refused(409, "already_ended")
					}
				})
			}
			all.Wait()
			if told.Load() != 1 {
				t.Fatalf("%d findings were accepted", told.Load())
			}
		}
	})

	t.Run("an effect whose result was not kept is not called again", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "small", "k")
		w.on(x, "shop", "effects", `{"name":"e"}`).want(201)
		w.on(x, "shop", "effects/settle", `{"name":"e","state":"confirmed","result":"0123456789abcdef"}`).want(200).equal("result_kept", "false")
		w.on(x, "shop", "effects", `{"name":"e"}`).refused(410, "result_not_kept")
	})
	t.Run("results that are too many together are not kept, and nothing is called again", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "retry", "k")
		result := strconv.Quote(strings.Repeat("x", semel.DefaultMaxResult-2))
		last := semel.MaxLedger / semel.DefaultMaxResult
		kept := map[bool]string{true: "null", false: "false"} // nothing is said of a result that is there
		settle := func(i int) {
			w.on(x, "shop", "effects/settle", fmt.Sprintf(`{"name":"e%d","state":"confirmed","result":%s}`, i, result)).
				want(200).equal("state", `"confirmed"`).equal("result_kept", kept[i < last])
		}
		for i := range last + 1 {
			w.on(x, "shop", "effects", fmt.Sprintf(`{"name":"e%d"}`, i)).want(201)
			settle(i)
		}
		settle(last) // told again
		w.on(x, "shop", "abort", `{"error":{"message":"never sent"}}`).want(200)
		x = w.begin("shop", "retry", "k").equal("attempt", "2")
		w.on(x, "shop", "effects", fmt.Sprintf(`{"name":"e%d"}`, last-1)).want(200).equal("result_kept", kept[true])
		w.on(x, "shop", "effects", fmt.Sprintf(`{"name":"e%d"}`, last)).refused(410, "result_not_kept")
	})
}
