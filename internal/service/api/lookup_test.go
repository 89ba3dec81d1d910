package api

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

func TestLookup(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Attributes = func() []string { return []string{"order"} } })
	look := func(who, q, more string) got {
		t.Helper()
		return w.send(who, "GET", "/v1/lookup?q="+url.QueryEscape(q)+more, "")
	}
	ids := map[string]string{}
	for _, key := range []string{"pay-1", "pay-2"} {
		x := w.send("shop", "POST", "/v1/operations/charge/executions", fmt.Sprintf(`{"payload":{"key":%q},"attributes":{"order":"9911"}}`, key), "Idempotency-Key", key).want(201)
		ids[key] = x.str("record.id")
		w.store.Advance(time.Second)
	}
	g := look("viewer", "9911", "").want(200).equal("complete", "true").equal("found.0.by", `["value:order"]`).equal("found.0.record.idempotency_key", `"pay-2"`).equal("found.0.record.verdict.state", `"running"`).equal("found.1.record.idempotency_key", `"pay-1"`)
	if g.str("verdict") == "" || g.at("next") != nil || g.at("gone") != nil {
		t.Errorf("%s", g.Raw)
	}
	look("viewer", "pay-1", "").want(200).equal("found.0.by", `["key"]`)
	look("viewer", ids["pay-1"], "").want(200).equal("found.0.by", `["record"]`).equal("complete", "true")
	look("root", "order=9911", "&tenant=acme").want(200).equal("found.1.by", `["attribute:order"]`)
	look("viewer", "nothing", "").want(200).equal("found", "[]").equal("verdict", `"nothing: no call"`).equal("complete", "true").equal("searched.records", "2")

	for _, q := range []string{"9911", "pay-1", ids["pay-1"]} {
		look("evilroot", q, "").want(200).equal("found", "[]").equal("verdict", fmt.Sprintf("%q", q+": no call"))
	}
	look("evilroot", "9911", "&tenant=acme").refused(403, "forbidden")
	look("viewer", "9911", "&tenant=evil").refused(403, "forbidden")
	w.sendTo(w.admin.URL, "shop", "GET", "/v1/lookup?q=9911", "").refused(403, "forbidden")
	w.sendTo(w.data.URL, "viewer", "GET", "/v1/lookup?q=9911", "").refused(404, "not_found")
	look("viewer", "9911", "&cursor=x").refused(400, "invalid_call")
	look("viewer", "", "").refused(400, "invalid_call")
}
