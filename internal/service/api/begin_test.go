package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/wire"
)

const beginCharge = "/v1/operations/charge/executions"

func TestBegin(t *testing.T) {
	t.Parallel()
	t.Run("the first delivery gets an execution, and its duplicates the result", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "order-1")
		x.equal("decision", `"execute"`).equal("attempt", "1").equal("lease_ms", "30000").equal("record.status", `"processing"`)
		x.equal("record.tenant", `"acme"`).equal("record.principal", `"shop"`).equal("record.idempotency_key", `"order-1"`).equal("record.holder", `"node-1"`)
		x.equal("record.decisions", "null").equal("record.attempts.0.number", "1").equal("record.effects", "[]")
		if x.Header.Get("Location") != "/v1/records/"+x.str("record.id") || x.num("fence") == 0 || x.str("execution") != x.str("record.id")+"."+x.numText("fence") {
			t.Fatalf("the execution is not named by the record and the fence: %s", x.Raw)
		}
		done := w.on(x, "shop", "complete", `{"result":{"id":"ch_1","amount":12345678901234567890,"note":"<&>"}}`).want(200)
		done.equal("record.status", `"completed"`).equal("record.disposition", `"completed"`)

		again := w.replay("shop", "charge", "order-1").want(200)
		again.equal("decision", `"replay"`).equal("execution", "null")
		if again.Header.Get("Idempotency-Replayed") != "true" {
			t.Error("a replay is not marked")
		}
		if want := `"result":{"id":"ch_1","amount":12345678901234567890,"note":"<&>"}`; !strings.Contains(string(again.Raw), want) {
			t.Errorf("the result is not as it was sent: %s", again.Raw)
		}
	})

	t.Run("a holder that was told to come back, and does, is alone with its execution", func(t *testing.T) {
		w := newWorld(t)
		for i := range 20 {
			key := fmt.Sprint("order-", i)
			ask := func() got {
				return w.send("shop", "POST", beginCharge, "{}", "Idempotency-Key", key, "Semel-Holder", "worker-"+key)
			}
			w.muteWrites(errors.New("no answer"))
			w.meet(2) // the release of the claim and the holder that asks again have read the same
			ask().refused(503, "store_unavailable")
			w.muteWrites(nil)
			x := ask()
			for ; x.Status == 409; x = ask() { // the release was faster
				x.refused(409, "in_flight")
			}
			w.on(x.want(201), "shop", "complete", `{"result":1}`).want(200)
			w.send("shop", "POST", beginCharge, "{}", "Idempotency-Key", key).want(200).equal("record.result", "1")
		}
	})

	t.Run("fifty at once make one execution", func(t *testing.T) {
		w := newWorld(t)
		var owners, refused atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				switch g := w.replay("shop", "charge", "many"); g.Status {
				case 201:
					owners.Add(1)
				case 409:
					g.refused(409, "in_flight")
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", g.Status, g.Raw)
				}
			})
		}
		all.Wait()
		if owners.Load() != 1 || refused.Load() != 49 {
			t.Errorf("%d executions and %d refusals", owners.Load(), refused.Load())
		}
	})

	t.Run("another payload under the same key is a conflict, however it is written the same one is not", func(t *testing.T) {
		w := newWorld(t)
		first := w.send("shop", "POST", beginCharge, `{"payload":{"amount":1,"to":"é"}}`, "Idempotency-Key", "k").want(201)
		w.send("shop", "POST", beginCharge, `{"payload":{"amount":2,"to":"é"}}`, "Idempotency-Key", "k").refused(422, "conflict")
		w.on(first, "shop", "complete", "").want(200)
		w.send("shop", "POST", beginCharge, "{\"payload\":{ \"to\":\"\\u00e9\", \"amount\":1.0}}", "Idempotency-Key", "k").want(200)
		w.send("shop", "POST", beginCharge, `{"payload":{"amount":2,"to":"é"}}`, "Idempotency-Key", "k").refused(422, "conflict")
		w.send("shop", "POST", beginCharge, `{"payload_hash":"`+first.str("record.payload_hash")+`"}`, "Idempotency-Key", "k").want(200)
		w.send("shop", "POST", beginCharge, ``, "Idempotency-Key", "k").refused(422, "conflict")
	})

	t.Run("numbers that a float can't tell apart, or can't hold, are told apart", func(t *testing.T) {
		w := newWorld(t)
		w.send("shop", "POST", beginCharge, `{"payload":9007199254740993}`, "Idempotency-Key", "n").want(201)
		w.send("shop", "POST", beginCharge, `{"payload":9007199254740992}`, "Idempotency-Key", "n").refused(422, "conflict")
		w.send("shop", "POST", beginCharge, `{"payload":[1e400]}`, "Idempotency-Key", "huge").want(201)
		w.send("shop", "POST", beginCharge, `{"payload":[1e401]}`, "Idempotency-Key", "huge").refused(422, "conflict")
	})

	t.Run("a call in flight says where and when to ask", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		g := w.replay("shop", "charge", "k").refused(409, "in_flight")
		if g.Header.Get("Location") != "/v1/records/"+x.str("record.id") || g.str("record") != x.str("record.id") || g.num("retry_after") < 1 || g.Header.Get("Retry-After") != g.numText("retry_after") {
			t.Errorf("%v: %s", g.Header, g.Raw)
		}
	})

	t.Run("a waiting delivery gets the outcome when there is one", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				g := w.send("shop", "POST", beginCharge, `{"payload":{"amount":1}}`, "Idempotency-Key", "k", "Prefer", "wait=20")
				if g.want(200).equal("record.result", `"done"`).Header.Get("Preference-Applied") != "wait=20" {
					t.Error("the preference is not acknowledged")
				}
			})
		}
		w.on(x, "shop", "complete", `{"result":"done"}`).want(200)
		waiting.Wait()
	})

	t.Run("callers do not share keys", func(t *testing.T) {
		w := newWorld(t)
		ids := map[string]bool{}
		for _, who := range []string{"shop", "other", "stranger"} {
			ids[w.begin(who, "charge", "same").str("record.id")] = true
		}
		if len(ids) != 3 {
			t.Errorf("three callers have %d records", len(ids))
		}
	})

	t.Run("failures are replayed or tried again as the operation says", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "fail", `{"error":{"code":"card","message":"declined"},"result":{"hint":1}}`).want(200).equal("record.status", `"failed"`)
		w.replay("shop", "charge", "k").want(200).equal("record.error", `{"code":"card","message":"declined"}`).equal("record.result", `{"hint":1}`)

		x = w.begin("shop", "retry", "k")
		w.on(x, "shop", "fail", `{"error":{"message":"no luck"}}`).want(200)
		second := w.begin("shop", "retry", "k").equal("attempt", "2").equal("record.attempts.0.error.message", `"no luck"`).equal("record.attempts.1.number", "2")
		if second.num("fence") <= x.num("fence") {
			t.Error("the fence did not rise")
		}
		w.on(second, "shop", "reject", `{"error":{"code":"never","message":"no"}}`).want(200).equal("record.disposition", `"rejected"`)
		w.replay("shop", "retry", "k").want(200).equal("record.error.code", `"never"`)
	})

	t.Run("an aborted call runs again", func(t *testing.T) {
		w := newWorld(t)
		w.on(w.begin("shop", "charge", "k"), "shop", "abort", `{"error":{"message":"never sent"}}`).want(200).equal("record.disposition", `"aborted"`)
		x := w.begin("shop", "charge", "k").equal("attempt", "2")
		w.on(x, "shop", "abort", ``).want(200)
	})

	t.Run("a holder that stays silent leaves a held record", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.store.Advance(31 * time.Second)
		g := w.replay("shop", "charge", "k").refused(409, "held")
		if g.Header.Get("Retry-After") == "" || g.str("record") != x.str("record.id") {
			t.Errorf("%v: %s", g.Header, g.Raw)
		}
		w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").want(200).equal("record.status", `"processing"`)
		w.on(x, "shop", "renew", "").refused(409, "lease_lost")
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
	})

	t.Run("too old, too often, and not for this caller", func(t *testing.T) {
		w := newWorld(t)
		w.send("shop", "POST", "/v1/operations/late/executions", `{"key":"k","first_sent":"2020-01-01T00:00:00Z"}`).refused(412, "too_late")
		x := w.begin("shop", "rare", "k")
		w.on(x, "shop", "complete", "").want(200)
		w.replay("shop", "rare", "k").want(200)
		if g := w.replay("shop", "rare", "k").refused(429, "throttled"); g.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		x = w.begin("shop", "shared", "k")
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
		w.replay("other", "shared", "k").refused(403, "forbidden")
		w.send("other", "GET", "/v1/records/"+x.str("record.id"), "").refused(404, "not_found")
		w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").want(200)
	})

	t.Run("a caller that is gone before it is told leaves nothing running", func(t *testing.T) {
		w := newWorld(t)
		x := &exchange{api: w.api, caller: callers["shop"], r: (&http.Request{Header: http.Header{}}).WithContext(&goneLater{Context: t.Context()})}
		if _, _, err := x.begin("charge", "", &wire.Beginning{Key: "gone"}, "body", 0); err == nil {
			t.Fatal("an execution was given to nobody")
		}
		w.send("shop", "POST", beginCharge, `{}`, "Idempotency-Key", "gone").want(201).equal("attempt", "2")
	})

	t.Run("a store that does not answer is no reason to execute", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		w.breakStore(errors.New("secret words of a driver"))
		for _, g := range []got{
			w.replay("shop", "charge", "k").refused(503, "store_unavailable"),
			w.on(x, "shop", "complete", "").refused(503, "store_unavailable"),
			w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").refused(503, "store_unavailable"),
		} {
			if g.Header.Get("Retry-After") == "" || strings.Contains(string(g.Raw), "secret") {
				t.Errorf("%v: %s", g.Header, g.Raw)
			}
		}
		// Who only reads is told nothing of calls: the one that they ask about was executed.
		if g := w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").refused(503, "store_unavailable"); strings.Contains(string(g.Raw), "executed") {
			t.Errorf("%s", g.Raw)
		}
		w.breakStore(nil)
		w.on(x, "shop", "complete", "").want(200)
	})

	t.Run("a closed engine is not there", func(t *testing.T) {
		w := newWorld(t)
		if err := w.engine.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.replay("shop", "charge", "k").refused(503, "closed")
	})

	t.Run("a read-only call is not recorded", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "look", "k")
		w.on(x, "shop", "renew", "").want(200)
		w.on(x, "shop", "effects", `{"name":"ask"}`).want(201)
		w.on(x, "shop", "complete", `{"result":7}`).want(200).equal("record.result", "7").equal("record.fence", x.numText("fence"))
		w.begin("shop", "look", "k")
		w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").refused(404, "not_found")
	})

	t.Run("a result that was not kept is not shown as one", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "small", "k")
		w.on(x, "shop", "complete", `{"result":"0123456789abcdef"}`).want(200).equal("record.result_kept", "false").equal("record.result", "null")
		w.replay("shop", "small", "k").want(200).equal("record.result_kept", "false")
	})

	t.Run("bytes that are no JSON come back byte for byte", func(t *testing.T) {
		w := newWorld(t)
		for key, text := range map[string]string{"bytes": "AP8KAA==", "none": "", "spaced": "eyAiYSI6IDEgfQ=="} {
			x := w.begin("shop", "charge", key)
			w.on(x, "shop", "complete", `{"result_base64":"`+text+`"}`).want(200)
			w.replay("shop", "charge", key).want(200).equal("record.result_base64", `"`+text+`"`).equal("record.result", "null")
		}
		x := w.begin("shop", "charge", "json-with-space")
		w.on(x, "shop", "complete", `{"result": { "a" : 1 } }`).want(200).equal("record.result", `{"a":1}`)
		x = w.begin("shop", "charge", "json")
		w.on(x, "shop", "complete", `{"result_base64":"eyJhIjoxfQ=="}`).want(200)
		w.replay("shop", "charge", "json").want(200).equal("record.result", `{"a":1}`).equal("record.result_base64", "null")
	})
}

// goneLater is the context of a caller that hangs up while the claim is written.
type goneLater struct {
	context.Context
	asked atomic.Int32
}

// Err says that the caller is there when it is first asked, and gone afterwards.
func (c *goneLater) Err() error {
	if c.asked.Add(1) == 1 {
		return nil
	}
	return errGone
}

var errGone = errors.New("gone")

func (g got) numText(path string) string {
	n, _ := g.at(path).(interface{ String() string })
	if n == nil {
		return ""
	}
	return n.String()
}
