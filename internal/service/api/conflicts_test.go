package api

import (
	"encoding/base64"
	"testing"
)

func TestConflictsAreListedAndCompared(t *testing.T) {
	w := newWorld(t)
	begin := func(as, operation, key, payload string) got {
		return w.send(as, "POST", "/v1/operations/"+operation+"/executions", `{"payload":`+payload+`}`, keyHeader, key)
	}
	for _, operation := range []string{"kept", "charge"} {
		begin("shop", operation, "order-1", `{"amount":1}`).want(201)
		begin("shop", operation, "order-1", `{"amount":2}`).refused(422, "conflict")
		begin("shop", operation, "order-1", `{"amount":2}`).refused(422, "conflict")
	}
	w.sendTo(w.admin.URL, "shop", "GET", "/v1/conflicts", "").want(403)
	if g := w.send("evilroot", "GET", "/v1/conflicts", "").want(200); len(g.Body["conflicts"].([]any)) != 0 {
		t.Errorf("another tenant's conflicts are listed: %s", g.Raw)
	}
	g := w.send("viewer", "GET", "/v1/conflicts", "").want(200)
	if g.str("conflicts.0.idempotency_key") != "order-1" || g.num("conflicts.0.decisions.conflict") != 2 || g.str("conflicts.0.principals.0") != "shop" || g.num("kept_days") != 7 || len(g.Body["conflicts"].([]any)) != 2 {
		t.Errorf("listed: %s", g.Raw)
	}
	record := map[string]string{}
	for _, c := range g.Body["conflicts"].([]any) {
		record[c.(map[string]any)["operation"].(string)] = c.(map[string]any)["record"].(string)
	}
	path := "/v1/records/" + record["kept"] + "/payloads"
	w.send("viewer", "GET", path, "").want(403)
	w.send("evilroot", "GET", path, "").want(404)
	w.sendTo(w.data.URL, "shop", "GET", path, "").want(404)
	w.send("operator", "GET", "/v1/records/x/payloads", "").want(404)
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	g = w.send("operator", "GET", path, "").want(200)
	if g.at("keeps") != true || g.str("first.payload_base64") != text(`{"amount":1}`) || g.str("presented.0.payload_base64") != text(`{"amount":2}`) || g.num("presented.0.count") != 2 {
		t.Errorf("compared: %s", g.Raw)
	}
	w.send("operator", "GET", "/v1/records/"+record["kept"], "").want(200).equal("record.verdict.refused_differ", `["/amount"]`)
	for _, who := range []string{"viewer", "shop"} { // who may not see payloads
		if g := w.send(who, "GET", "/v1/records/"+record["kept"], "").want(200); g.at("record.verdict.refused_differ") != nil {
			t.Errorf("%s is told %s", who, g.Raw)
		}
	}
	g = w.send("operator", "GET", "/v1/records/"+record["charge"]+"/payloads", "").want(200)
	if g.at("keeps") != false || g.at("first.payload_base64") != nil || g.at("presented.0.payload_base64") != nil || g.str("presented.0.payload_hash") == g.str("first.payload_hash") {
		t.Errorf("of an operation that keeps no payloads: %s", g.Raw)
	}
}
