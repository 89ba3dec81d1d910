package api

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	t.Run("a body that is not exactly what is described is refused, with the place", func(t *testing.T) {
		w := newWorld(t)
		for body, place := range map[string]string{
			`{`:                              "body",
			`nothing`:                        "body",
			`[]`:                             "body",
			`"text"`:                         "body",
			`{"payload":1}{}`:                "body",
			`{"payload":1} x`:                "body",
			"{\"payload\":\"\xff\"}":         "body.payload",
			`{"payload":1,"payload":2}`:      "body",
			`{"payload":{"a":1,"\u0061":2}}`: "body.payload",
			`{"payload":[{"a":1,"b":{"c":1,"c":1}}]}`: "body.payload",
			`{"payload":"\ud800"}`:                    "body.payload",
			`{"Payload":1}`:                           "body.Payload",
			`{"unknown":1}`:                           "body.unknown",
			`{"key":7}`:                               "body.key",
			`{"payload_hash":7}`:                      "body.payload_hash",
			`{"payload_hash":"2:12"}`:                 "body.payload_hash",
			`{"payload_hash":"x"}`:                    "body.payload_hash",
			`{"first_sent":"soon"}`:                   "body.first_sent",
			`{"payload":1,"payload_hash":"2:` + strings.Repeat("0", 64) + `"}`: "body.payload_hash",
			`{"payload_hash":"2:` + strings.Repeat("0", 64) + ` and more"}`:    "body.payload_hash",
			`{"key":"` + strings.Repeat("k", 1025) + `"}`:                      "body.key",
		} {
			g := w.send("shop", "POST", beginCharge, body, "Idempotency-Key", "k").refused(400, "invalid_call")
			if g.str("errors.0.location") != place {
				t.Errorf("%.60s: the place is %q: %s", body, g.str("errors.0.location"), g.Raw)
			}
			if strings.Contains(string(g.Raw), "text") && strings.Contains(body, "text") {
				t.Errorf("the body is repeated: %s", g.Raw)
			}
		}
		x := w.send("shop", "POST", beginCharge, `{"payload":1}`, "Idempotency-Key", "k").want(201).equal("attempt", "1")
		for _, body := range []string{`{"result":{"a":1,"a":2}}`, `{"result":"\ud800"}`, `{"result":1 2}`, `{"messages":[{"name":"m","destination":"d","payload":{"a":1,"a":2}}]}`} {
			w.on(x, "shop", "complete", body).refused(400, "invalid_call").equal("errors.0.location", `"body"`)
		}
		twice := w.send("shop", "POST", "/v1/batch", `{"items":[{"begin":{"operation":"charge","key":"twice","payload":{"a":1,"a":2}}}]}`).want(200)
		twice.equal("items.0.status", "400").equal("items.0.body.errors.0.location", `"body.items[0].begin.payload"`)
	})

	t.Run("the key is one, wherever it is", func(t *testing.T) {
		w := newWorld(t)
		w.send("shop", "POST", beginCharge, ``).refused(400, "invalid_call")
		w.send("shop", "POST", beginCharge, `{"key":""}`).refused(400, "invalid_call")
		w.send("shop", "POST", beginCharge, `{"key":"a"}`, "Idempotency-Key", "b").refused(400, "invalid_call").equal("errors.0.location", `"body.key"`)
		w.send("shop", "POST", beginCharge, ``, "Idempotency-Key", "a", "Idempotency-Key", "a").refused(400, "invalid_call").equal("errors.0.location", `"header.Idempotency-Key"`)
		for _, key := range []string{"", `"open`, `"a";p=1`, "a,b", `""`, "a b", "\u00e9", strings.Repeat("k", 1025)} {
			w.send("shop", "POST", beginCharge, ``, "Idempotency-Key", key).refused(400, "invalid_call")
		}
		first := w.send("shop", "POST", beginCharge, ``, "Idempotency-Key", `"a,\"b\""`).want(201)
		w.send("shop", "POST", beginCharge, `{"key":"a,\"b\""}`).refused(409, "in_flight").equal("record", `"`+first.str("record.id")+`"`)
		w.send("shop", "POST", beginCharge, `{"key":"b"}`, "Idempotency-Key", `"b"`).want(201)
		w.send("shop", "POST", beginCharge, `{"key":"`+strings.Repeat("é", 513)+`"}`).refused(400, "invalid_call")
		w.send("shop", "POST", beginCharge, `{"key":"a\u0000b"}`).refused(400, "invalid_call")
	})

	t.Run("a body that is too large is refused before it is read", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.bounds = usual; o.bounds.body, o.bounds.batch = 1000, 2000 })
		pad := func(n int) string { return `{"key":"k","payload":"` + strings.Repeat("x", n-24) + `"}` }
		w.send("shop", "POST", beginCharge, pad(1001)).refused(413, "too_large")
		w.send("shop", "POST", beginCharge, pad(1_000_000)).refused(413, "too_large")
		w.send("shop", "POST", "/v1/batch", pad(2001)).refused(413, "too_large")
		x := w.send("shop", "POST", beginCharge, pad(1000)).want(201)
		w.on(x, "shop", "complete", `{"result":"`+strings.Repeat("x", 1000)+`"}`).refused(413, "too_large")
		w.on(x, "shop", "complete", ``).want(200)
	})

	t.Run("a body that does not arrive is given up", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.bounds = usual; o.bounds.bodyTime = 20 * time.Millisecond })
		body, stop := io.Pipe()
		defer stop.Close()
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.data.URL+beginCharge, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer shop")
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != 400 || !strings.Contains(string(text), "body_unreadable") {
			t.Errorf("status %d: %s", res.StatusCode, text)
		}
	})

	t.Run("the time limit of a body does not end a wait", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.bounds = usual; o.bounds.bodyTime = 20 * time.Millisecond })
		w.begin("shop", "charge", "k")
		g := w.send("shop", "POST", beginCharge, `{"payload":{"amount":1}}`, "Idempotency-Key", "k", "Prefer", "wait=1")
		g.refused(409, "in_flight")
	})

	t.Run("what is not JSON by its own word is refused", func(t *testing.T) {
		w := newWorld(t)
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/cbor", "multipart/form-data; boundary=x"} {
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.data.URL+beginCharge, strings.NewReader(`{"key":"k"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer shop")
			req.Header.Set("Content-Type", media)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != 415 || !strings.Contains(string(text), `"unsupported_media_type"`) {
				t.Errorf("%s: status %d: %s", media, res.StatusCode, text)
			}
		}
		g := w.send("shop", "POST", beginCharge, "\x1f\x8b", "Content-Encoding", "gzip", "Content-Type", "application/json")
		if g.refused(415, "unsupported_media_type"); !strings.Contains(g.str("detail"), "Content-Encoding") {
			t.Errorf("a compressed body: %s", g.str("detail"))
		}
	})

	t.Run("unknown operations, addresses, methods, parameters and callers are refused as problems", func(t *testing.T) {
		w := newWorld(t)
		w.send("shop", "POST", "/v1/operations/nothing/executions", `{"key":"k"}`).refused(404, "unknown_operation")
		w.send("shop", "GET", "/v1/operations/nothing", "").refused(404, "unknown_operation")
		w.send("shop", "GET", "/v1/nothing", "").refused(404, "not_found")
		w.send("shop", "GET", "/", "").refused(404, "not_found")
		if g := w.send("shop", "GET", beginCharge, "").refused(405, "method_not_allowed"); g.Header.Get("Allow") != "POST" {
			t.Errorf("Allow is %q", g.Header.Get("Allow"))
		}
		if g := w.send("shop", "DELETE", "/v1/operations", "").refused(405, "method_not_allowed"); g.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow is %q", g.Header.Get("Allow"))
		}
		w.send("shop", "GET", "/v1/operations?page=2", "").refused(400, "invalid_call")
		for _, path := range []string{"/v1/operations", "/v1/records/x"} {
			if g := w.send("nobody", "GET", path, "").refused(401, "unauthorized"); g.Header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		}
		w.send("nobody", "POST", beginCharge, `{`).refused(401, "unauthorized")
	})

	t.Run("a result that is neither is refused", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		for _, body := range []string{`{"result":1,"result_base64":"AA=="}`, `{"result_base64":"?"}`, `{"result_base64":7}`, `{"results":1}`, `1`, `{"result":{"a":1,"a":2}}`} {
			w.on(x, "shop", "complete", body).refused(400, "invalid_call")
		}
		for _, body := range []string{``, `{}`, `{"error":7}`, `{"error":{"message":1}}`, `{"error":{"code":"c","more":1}}`} {
			w.on(x, "shop", "reject", body).refused(400, "invalid_call")
			w.on(x, "shop", "fail", body).refused(400, "invalid_call")
		}
		for _, body := range []string{``, `{}`, `{"reason":""}`} {
			w.on(x, "shop", "hold", body).refused(400, "invalid_call")
		}
		w.on(x, "shop", "complete", `{"result":null}`).want(200).equal("record.status", `"completed"`)
	})
}
