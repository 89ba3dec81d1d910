package api

import "testing"

// TestCallersNobodyVerified: a call with a key that can't be guessed belongs to the
// credential that began it, and so does everything that names it.
func TestCallersNobodyVerified(t *testing.T) {
	t.Parallel()
	const key = "0f8fad5b-d9cb-469f-a165-70867728950e"
	t.Run("another credential neither begins nor ends nor sees the call", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("first", "charge", key)
		record := x.str("record.id")
		for _, other := range []string{"second", "nothing"} {
			w.replay(other, "charge", key).refused(409, "in_flight").equal("record", `"`+record+`"`)
			w.send(other, "POST", "/v1/operations/charge/executions", `{"payload":{"amount":2}}`, "Idempotency-Key", key, "Prefer", "wait=1").refused(409, "in_flight")
			w.send(other, "GET", "/v1/records/"+record, "").refused(409, "other_caller")
			w.send(other, "GET", "/v1/records/"+record, "", "Prefer", "wait=5").refused(409, "other_caller")
			for _, what := range []string{"renew", "complete", "fail", "hold"} {
				body := ""
				switch what {
				case "hold":
					body = `{"reason":"r"}`
				case "fail":
					body = `{"error":{"message":"m"}}`
				}
				w.on(x, other, what, body).refused(404, "not_found")
			}
		}
		w.on(x, "first", "renew", "").want(200)
		w.on(x, "first", "complete", `{"result":"secret"}`).want(200)
		w.replay("second", "charge", key).refused(409, "other_caller").equal("action", `"verify"`).equal("record", `"`+record+`"`)
		w.send("second", "GET", "/v1/records/"+record, "").refused(409, "other_caller")
		w.replay("first", "charge", key).want(200).equal("record.result", `"secret"`).equal("record.bound_to", `"credential:first"`)
		w.send("first", "GET", "/v1/records/"+record, "").want(200)
		w.send("viewer", "GET", "/v1/records/"+record, "").want(200)
		w.send("shop", "GET", "/v1/records/"+record, "").refused(404, "not_found")
	})
	t.Run("the same holder name under another credential gets no claim", func(t *testing.T) {
		w := newWorld(t)
		path, body := "/v1/operations/charge/executions", `{"payload":{"amount":1}}`
		w.send("first", "POST", path, body, "Idempotency-Key", key, "Semel-Holder", "h").want(201)
		w.send("second", "POST", path, body, "Idempotency-Key", key, "Semel-Holder", "h").refused(409, "in_flight")
		w.send("second", "POST", path, body, "Idempotency-Key", key, "Semel-Holder", "h", "Prefer", "wait=1").refused(409, "in_flight")
		w.send("first", "POST", path, body, "Idempotency-Key", key, "Semel-Holder", "h").want(201)
	})
	t.Run("an attempt that failed is not continued under another", func(t *testing.T) {
		w := newWorld(t)
		w.on(w.begin("first", "retry", key), "first", "fail", `{"error":{"message":"m"}}`).want(200)
		w.replay("second", "retry", key).refused(409, "other_caller")
		w.replay("first", "retry", key).want(201)
	})
	t.Run("an attempt that was aborted is another's to begin anew", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("first", "charge", key)
		w.on(x, "first", "abort", `{"error":{"message":"m"}}`).want(200)
		y := w.begin("second", "charge", key).equal("attempt", "1")
		w.on(x, "first", "complete", "").refused(409, "lease_lost")
		w.on(y, "second", "complete", "").want(200)
		w.replay("first", "charge", key).refused(409, "other_caller")
	})
	t.Run("a key that can be guessed is one call for each", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("first", "charge", "order-1")
		w.begin("second", "charge", "order-1")
		w.begin("nothing", "charge", "order-1")
		w.send("second", "GET", "/v1/records/"+x.str("record.id"), "").refused(404, "not_found")
		w.on(x, "second", "complete", "").refused(404, "not_found")
		w.on(x, "first", "complete", "").want(200)
	})
	t.Run("where the tenant shares its keys an execution still belongs to who began it", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("first", "shared", key)
		w.replay("second", "shared", key).refused(409, "in_flight")
		w.on(x, "second", "complete", "").refused(404, "not_found")
		w.on(x, "first", "complete", "").want(200)
	})
}
