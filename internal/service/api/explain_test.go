package api

import (
	"net/http"
	"testing"

	"github.com/semelhq/semel"
)

// explainAll explains requests as a service does whose only route takes everything.
func explainAll(r *http.Request, body []byte) (Explained, error) {
	fp, _ := semel.FingerprintJSON(body)
	key := r.Header.Get(keyHeader)
	return Explained{
		Outcome: "guarded", Why: "It has a key.", Operation: "charge", Key: key, KeyFrom: "header:" + keyHeader, PayloadHash: fp,
		ID: semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: key}, Rules: []Rule{{"routes[0]", "/", true, "It takes everything."}},
	}, nil
}

func TestARequestIsExplainedAndNotDone(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Explain = explainAll })
	explain := func(as, payload string) got {
		return w.send(as, "POST", "/v1/explain", `{"request":"POST http://h/a?b=c HTTP/1.1\nIdempotency-Key: k\n\n`+payload+`"}`)
	}
	if g := explain("viewer", "1").want(200); g.str("target") != "/a?b=c" || g.str("method") != "POST" || g.at("record") != nil || g.str("rules.0.rule") != "routes[0]" {
		t.Errorf("explained: %s", g.Raw)
	}
	w.send("shop", "POST", "/v1/operations/charge/executions", `{"payload":1}`, keyHeader, "k").want(201)
	for payload, same := range map[string]bool{"1": true, "2": false} {
		if g := explain("viewer", payload).want(200); g.at("record.same_payload") != same || g.str("record.status") != "processing" {
			t.Errorf("explained: %s", g.Raw)
		}
	}
	if g := explain("evilroot", "1").want(200); g.at("record") != nil {
		t.Errorf("a record of another tenant is shown: %s", g.Raw)
	}
	w.sendTo(w.admin.URL, "shop", "POST", "/v1/explain", `{"request":"GET /"}`).want(403)
	w.sendTo(w.data.URL, "root", "POST", "/v1/explain", `{"request":"GET /"}`).want(404)
	w.send("viewer", "POST", "/v1/explain", `{"request":"rm -rf /"}`).want(400)
	newWorld(t).send("viewer", "POST", "/v1/explain", `{"request":"GET /"}`).want(501)
}
