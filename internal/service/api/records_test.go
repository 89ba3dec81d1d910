package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func find(q string) string { return "/v1/records?q=" + url.QueryEscape(q) }

func TestRecords(t *testing.T) {
	t.Parallel()
	t.Run("a record is there for its caller, and for who oversees the tenant", func(t *testing.T) {
		w := newWorld(t)
		path := "/v1/records/" + w.begin("shop", "charge", "k").str("record.id")
		w.send("shop", "GET", path, "").want(200).equal("record.idempotency_key", `"k"`)
		for _, who := range []string{"viewer", "operator", "root"} {
			w.send(who, "GET", path, "").want(200)
		}
		for _, who := range []string{"other", "stranger", "evilroot"} {
			w.send(who, "GET", path, "").refused(404, "not_found")
			w.sendTo(w.admin.URL, who, "GET", path, "").refused(404, "not_found")
		}
		w.sendTo(w.data.URL, "viewer", "GET", path, "").refused(404, "not_found")
		w.send("shop", "GET", "/v1/records/nothing", "").refused(404, "not_found")
	})

	t.Run("waiting ends with the outcome, with a hold, or with the time", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		path := "/v1/records/" + x.str("record.id")
		w.send("shop", "GET", path, "", "Prefer", "wait=1").want(200).equal("record.status", `"processing"`)
		answers := make(chan got)
		go func() { answers <- w.send("shop", "GET", path, "", "Prefer", "wait=20") }()
		w.on(x, "shop", "hold", `{"reason":"lost"}`).want(200)
		(<-answers).want(200).equal("record.held_reason", `"lost"`)
		w.on(x, "shop", "complete", `{"result":1}`).want(200)
		if g := w.send("shop", "GET", path, "", "Prefer", "wait=20").want(200).equal("record.result", "1"); g.Header.Get("Preference-Applied") != "wait=20" {
			t.Error("the preference is not acknowledged")
		}
	})

	t.Run("a record shows what the core model says, its attempts, effects and decisions", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "retry", "k")
		w.on(x, "shop", "abort", `{"error":{"message":"no"}}`).want(200)
		x = w.begin("shop", "retry", "k")
		w.on(x, "shop", "effects", `{"name":"e"}`).want(201)
		w.replay("shop", "retry", "k").want(409)
		g := w.send("shop", "GET", "/v1/records/"+x.str("record.id"), "").want(200)
		g.equal("record.attempts.0.disposition", `"aborted"`).equal("record.attempts.0.principal", `"shop"`).equal("record.attempts.1.number", "2")
		g.equal("record.effects.0.name", `"e"`).equal("record.effects.0.state", `"started"`).equal("record.decisions", `{"execute":2,"in_flight":1}`)
		if !strings.HasPrefix(g.str("record.payload_hash"), "2:") || g.str("record.created_at") == "" || g.at("record.ended_at") != nil {
			t.Errorf("%s", g.Raw)
		}
	})
}

func TestSearch(t *testing.T) {
	w := newWorld(t)
	for _, who := range []string{"shop", "other", "stranger"} {
		for _, key := range []string{"a", "b", "c"} {
			w.begin(who, "charge", key)
			w.store.Advance(time.Second)
		}
	}
	w.on(w.begin("shop", "retry", "d"), "shop", "complete", "").want(200)
	w.on(w.begin("shop", "charge", "e"), "shop", "hold", `{"reason":"r"}`).want(200)
	count := func(t *testing.T, who, q string, want int) {
		t.Helper()
		g := w.send(who, "GET", find(q), "").want(200)
		if list := g.at("records").([]any); len(list) != want {
			t.Errorf("%s: %d records instead of %d", q, len(list), want)
		}
	}

	t.Run("the words select", func(t *testing.T) {
		count(t, "root", "", 11)
		count(t, "root", "tenant:evil", 3)
		count(t, "root", "key:a", 3)
		count(t, "root", "operation:charge principal:shop tenant:acme", 4)
		count(t, "root", "state:completed", 1)
		count(t, "root", "held", 1)
		count(t, "root", `key:"b" state:processing`, 3)
		count(t, "root", "before:2001-01-01", 0)
	})
	t.Run("a tenant bounds everything", func(t *testing.T) {
		count(t, "viewer", "", 8)
		count(t, "evilroot", "", 3)
		count(t, "viewer", "tenant:acme", 8)
		w.send("viewer", "GET", find("tenant:evil"), "").refused(403, "forbidden")
	})
	t.Run("pages go on where the last one ended", func(t *testing.T) {
		seen := map[string]bool{}
		path := "/v1/records?limit=4"
		for range 10 {
			g := w.send("root", "GET", path, "").want(200)
			for _, rec := range g.at("records").([]any) {
				seen[rec.(map[string]any)["id"].(string)] = true
			}
			if g.str("next") == "" {
				break
			}
			path = "/v1/records?limit=4&cursor=" + url.QueryEscape(g.str("next"))
		}
		if len(seen) != 11 {
			t.Errorf("%d records on all pages", len(seen))
		}
	})
	t.Run("what is not a query is refused, with the place", func(t *testing.T) {
		for path, place := range map[string]string{
			find("colour:red"): "query.q", find("state:done"): "query.q", find("after:soon"): "query.q", find(`key:"open`): "query.q",
			"/v1/records?limit=0": "query.limit", "/v1/records?limit=1001": "query.limit", "/v1/records?limit=x": "query.limit", "/v1/records?query=x": "query.query",
		} {
			if g := w.send("root", "GET", path, "").refused(400, "invalid_call"); g.str("errors.0.location") != place {
				t.Errorf("%s: %s", path, g.Raw)
			}
		}
		w.send("root", "GET", "/v1/records?cursor=nothing", "").refused(400, "invalid_call")
	})
	t.Run("only viewers search, and only where people are", func(t *testing.T) {
		w.sendTo(w.admin.URL, "shop", "GET", find(""), "").refused(403, "forbidden")
		w.sendTo(w.data.URL, "viewer", "GET", find(""), "").refused(404, "not_found")
	})
}

func TestOperators(t *testing.T) {
	t.Parallel()
	held := func(t *testing.T, w *world) (x got, path string) {
		t.Helper()
		x = w.begin("shop", "charge", "k")
		w.on(x, "shop", "effects", `{"name":"call"}`).want(201)
		w.on(x, "shop", "hold", `{"reason":"timed out"}`).want(200)
		return x, "/v1/records/" + x.str("record.id")
	}

	t.Run("a held record is settled by an operator's word", func(t *testing.T) {
		for outcome, body := range map[string]string{
			"completed": `{"outcome":"completed","result":{"a":1},"effects":[{"name":"call","state":"confirmed","result":2}],"reason":"asked the bank"}`,
			"rejected":  `{"outcome":"rejected","error":{"code":"c","message":"m"},"reason":"r"}`,
			"failed":    `{"outcome":"failed","error":{"code":"c","message":"m"},"reason":"r"}`,
		} {
			w := newWorld(t)
			_, path := held(t, w)
			w.send("operator", "POST", path+"/settle", body).want(200).equal("record.disposition", `"`+outcome+`"`)
			w.replay("shop", "charge", "k").want(200)
			w.send("operator", "POST", path+"/settle", body).refused(409, "illegal_transition")
		}
	})

	t.Run("what is proved not to have happened runs again", func(t *testing.T) {
		w := newWorld(t)
		_, path := held(t, w)
		w.send("operator", "POST", path+"/settle", `{"outcome":"aborted","reason":"r"}`).want(200).equal("record.effects.0.state", `"refuted"`)
		w.begin("shop", "charge", "k").equal("attempt", "2")
	})

	t.Run("settling the last effect lets the call go on", func(t *testing.T) {
		w := newWorld(t)
		_, path := held(t, w)
		w.send("operator", "POST", path+"/settle", `{"effects":[{"name":"other","state":"confirmed"}],"reason":"r"}`).refused(409, "illegal_transition")
		w.send("operator", "POST", path+"/settle", `{"effects":[{"name":"call","state":"confirmed","result":"m1"}],"reason":"r"}`).want(200).equal("record.disposition", `"abandoned"`)
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "effects", `{"name":"call"}`).want(200).equal("result", `"m1"`)
	})

	t.Run("releasing needs the effects settled", func(t *testing.T) {
		w := newWorld(t)
		_, path := held(t, w)
		w.send("operator", "POST", path+"/release", `{"reason":"r"}`).refused(409, "illegal_transition")
		x := w.begin("shop", "charge", "plain")
		w.on(x, "shop", "hold", `{"reason":"r"}`).want(200)
		path = "/v1/records/" + x.str("record.id")
		w.send("operator", "POST", path+"/release", `{"reason":"nothing happened"}`).want(200).equal("record.disposition", `"abandoned"`)
		w.send("operator", "POST", path+"/release", `{"reason":"nothing happened"}`).refused(409, "illegal_transition")
		w.begin("shop", "charge", "plain").equal("attempt", "2")
		w.send("operator", "POST", path+"/settle", `{"outcome":"completed","reason":"r"}`).refused(409, "illegal_transition")
	})

	t.Run("a word about an attempt isn't taken for the next", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "retry", "k")
		path := "/v1/records/" + x.str("record.id")
		about := func(x got, action, more string) got {
			return w.send("operator", "POST", path+"/"+action, fmt.Sprintf(`{"reason":"r","fence":%d%s}`, x.num("record.fence"), more))
		}
		hold := func(x got) { w.on(x, "shop", "hold", `{"reason":"r"}`).want(200) }
		hold(x)
		about(x, "settle", `,"outcome":"aborted"`).want(200)
		next := w.begin("shop", "retry", "k")
		hold(next)
		for action, more := range map[string]string{"settle": `,"outcome":"aborted"`, "release": "", "purge": ""} {
			if g := about(x, action, more).refused(409, "illegal_transition"); !strings.Contains(g.str("detail"), "a later attempt than the one you saw") {
				t.Errorf("%s: %s", action, g.Raw)
			}
		}
		about(next, "release", "").want(200)
		about(x, "purge", "").refused(409, "illegal_transition")
		about(next, "purge", "").want(204)
		about(next, "purge", "").refused(404, "not_found")
	})

	t.Run("what retries will get is said before anybody decides", func(t *testing.T) {
		w := newWorld(t)
		for operation, failed := range map[string]string{"charge": "Each retry gets the failure that you give.", "retry": "The next retry runs it again.", "none": "Whether retries get this failure or run it again is up to the policy of the operation."} {
			g := w.send("viewer", "GET", "/v1/operations/"+operation+"/choices", "").want(200).equal("choices.3.outcome", `"failed"`)
			if got := g.str("choices.3.retries"); got != failed {
				t.Errorf("%s: %q", operation, got)
			}
		}
		w.sendTo(w.admin.URL, "shop", "GET", "/v1/operations/charge/choices", "").refused(403, "forbidden")
	})

	t.Run("nobody is asked where there is no reconciler", func(t *testing.T) {
		w := newWorld(t)
		_, path := held(t, w)
		w.send("operator", "POST", path+"/reconcile", `{}`).refused(501, "unsupported")
		w.send("evilroot", "POST", path+"/reconcile", `{}`).refused(404, "not_found")
		w.sendTo(w.admin.URL, "viewer", "POST", path+"/reconcile", `{}`).refused(403, "forbidden")
	})

	t.Run("purging forgets what has ended", func(t *testing.T) {
		w := newWorld(t)
		x := w.begin("shop", "charge", "k")
		path := "/v1/records/" + x.str("record.id")
		w.send("operator", "POST", path+"/purge", `{"reason":"r"}`).refused(409, "illegal_transition")
		w.on(x, "shop", "complete", "").want(200)
		w.send("operator", "POST", path+"/purge", `{"reason":"r"}`).want(204)
		w.send("operator", "POST", path+"/purge", `{"reason":"r"}`).refused(404, "not_found")
		w.begin("shop", "charge", "k").equal("attempt", "1")
	})

	t.Run("every action needs the role, the tenant, a record and a reason", func(t *testing.T) {
		w := newWorld(t)
		_, path := held(t, w)
		for action, body := range map[string]string{"settle": `{"outcome":"aborted","reason":"r"}`, "release": `{"reason":"r"}`, "confirm": `{"reason":"r"}`, "purge": `{"reason":"r"}`} {
			for _, who := range []string{"viewer", "shop"} {
				w.sendTo(w.admin.URL, who, "POST", path+"/"+action, body).refused(403, "forbidden")
			}
			w.send("evilroot", "POST", path+"/"+action, body).refused(404, "not_found")
			w.sendTo(w.data.URL, "operator", "POST", path+"/"+action, body).refused(404, "not_found")
			missing := semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "none"}
			w.send("operator", "POST", "/v1/records/"+missing.Encode()+"/"+action, body).refused(404, "not_found")
			w.send("operator", "POST", path+"/"+action, strings.Replace(body, `"reason":"r"`, `"reason":""`, 1)).refused(400, "invalid_call")
			w.send("operator", "POST", path+"/"+action, `{}`).refused(400, "invalid_call")
		}
		for _, body := range []string{
			`{"reason":"r"}`, `{"outcome":"abandoned","reason":"r"}`, `{"outcome":"completed","error":{"message":"m"},"reason":"r"}`, `{"outcome":"aborted","result":1,"reason":"r"}`,
			`{"outcome":"completed","result":1,"result_base64":"AA==","reason":"r"}`, `{"effects":[{"name":"call","state":"confirmed"}],"result":1,"reason":"r"}`,
			`{"effects":[{"name":"call","state":"open"}],"reason":"r"}`, `{"effects":[{"name":"call","state":"refuted","result":1}],"reason":"r"}`,
			`{"effects":[{"name":"call","state":"refuted"}],"error":{"message":"m"},"reason":"r"}`,
		} {
			w.send("operator", "POST", path+"/settle", body).refused(400, "invalid_call")
		}
		w.send("root", "POST", path+"/settle", `{"outcome":"aborted","reason":"r"}`).want(200)
	})
}

func TestOperations(t *testing.T) {
	w := newWorld(t)
	t.Run("the declared policy is listed by name with its defaults", func(t *testing.T) {
		g := w.send("shop", "GET", "/v1/operations", "").want(200)
		if list := g.at("operations").([]any); len(list) != len(testOperations) || list[0].(map[string]any)["name"] != "charge" {
			t.Errorf("%s", g.Raw)
		}
		g.equal("operations.0.lease_ms", "30000").equal("operations.0.window_ms", "86400000").equal("operations.0.effects", "null")
	})
	t.Run("one is read by its name", func(t *testing.T) {
		w.send("shop", "GET", "/v1/operations/mail", "").want(200).equal("effects", `["send","log/*"]`).equal("on_abandoned", `"hold"`)
		w.send("shop", "GET", "/v1/operations/rich", "").want(200).equal("financial", "true").equal("shields", `["S3"]`).equal("per_principal", `{"burst":1000,"per_second":1000}`)
	})
}

func TestBatch(t *testing.T) {
	t.Parallel()
	t.Run("items are answered as if they were alone, in their order", func(t *testing.T) {
		w := newWorld(t)
		w.on(w.begin("shop", "charge", "old"), "shop", "complete", `{"result":1}`).want(200)
		w.begin("shop", "charge", "running")
		g := w.send("shop", "POST", "/v1/batch", `{"items":[
			{"begin":{"operation":"charge","key":"new","payload":{"amount":1}}},
			{"begin":{"operation":"charge","key":"old","payload":{"amount":1}}},
			{"begin":{"operation":"charge","key":"old","payload":{"amount":2}}},
			{"begin":{"operation":"charge","key":"running","payload":{"amount":1}}},
			{"begin":{"operation":"nothing","key":"k"}},
			{"complete":{"execution":"x"}},
			{},
			{"begin":{"operation":"charge","key":"both"},"complete":{"execution":"x"}},
			{"begin":{"operation":"charge","key":"hash","payload_hash":"x"}}
		]}`).want(200)
		for i, want := range []struct{ status, at, value string }{
			{"201", "body.decision", `"execute"`}, {"200", "body.record.result", "1"}, {"422", "body.code", `"conflict"`}, {"409", "body.code", `"in_flight"`},
			{"404", "body.code", `"unknown_operation"`}, {"404", "body.code", `"not_found"`}, {"400", "body.errors.0.location", `"body.items[6]"`},
			{"400", "body.errors.0.location", `"body.items[7]"`}, {"400", "body.errors.0.location", `"body.items[8].begin.payload_hash"`},
		} {
			item := "items." + string(rune('0'+i)) + "."
			g.equal(item+"status", want.status).equal(item+want.at, want.value)
		}
		done := w.send("shop", "POST", "/v1/batch", `{"items":[{"complete":{"execution":"`+g.str("items.0.body.execution")+`","result":{"id":7}}}]}`).want(200)
		done.equal("items.0.status", "200").equal("items.0.body.record.result", `{"id":7}`)
		w.replay("shop", "charge", "new").want(200).equal("record.result", `{"id":7}`)
	})

	t.Run("the same key many times in one batch is one execution", func(t *testing.T) {
		w := newWorld(t)
		item := `{"begin":{"operation":"charge","key":"k","payload":1}}`
		g := w.send("shop", "POST", "/v1/batch", `{"items":[`+item+strings.Repeat(","+item, 499)+`]}`).want(200)
		owners := 0
		for _, it := range g.at("items").([]any) {
			if it.(map[string]any)["status"].(interface{ String() string }).String() == "201" {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("%d executions", owners)
		}
		w.send("shop", "POST", "/v1/batch", `{"items":[`+item+strings.Repeat(","+item, 500)+`]}`).refused(400, "invalid_call")
	})

	t.Run("a batch of another form is refused whole", func(t *testing.T) {
		w := newWorld(t)
		for _, body := range []string{``, `{}`, `{"items":[]}`, `{"items":{}}`, `{"items":[{"begin":{"operation":"charge"}}]}`, `{"items":[{"renew":{}}]}`} {
			w.send("shop", "POST", "/v1/batch", body).refused(400, "invalid_call")
		}
	})
}
