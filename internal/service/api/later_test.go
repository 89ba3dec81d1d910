package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel/store"
)

func TestConfirmation(t *testing.T) {
	w := newWorld(t)
	const path = "/v1/operations/confirmed/executions"
	call := func(as, confirm string) got {
		body := `{"key":"k","payload":{"to":"acc-1"},"attributes":{"command_id":"cmd-1"}`
		if confirm != "" {
			body += `,"confirm":"` + confirm + `"`
		}
		return w.send(as, "POST", path, body+"}")
	}
	g := call("shop", "").refused(428, "confirmation_required")
	token := g.str("challenge.token")
	if len(token) != 43 || g.str("challenge.expires_at") == "" || g.str("record") == "" {
		t.Fatalf("the challenge is %s", g.Raw)
	}
	call("shop", strings.Repeat("A", 43)).refused(403, "confirmation_refused")
	x := call("shop", token).want(201)
	g = w.on(x, "shop", "complete", `{"result":{"ok":true}}`).want(200)
	g.equal("record.attributes", `{"command_id":"cmd-1"}`).equal("record.confirmation.tries", "1").equal("record.confirmation.principal", `"shop"`)
	if g.str("record.confirmation.confirmed_at") == "" {
		t.Errorf("it does not show when it was confirmed: %s", g.Raw)
	}
	if strings.Contains(string(g.Raw), token) {
		t.Error("the token is shown again")
	}
	call("shop", "").want(200).equal("decision", `"replay"`)
	call("shop", token).want(200).equal("decision", `"replay"`)
}

// TestAnOperatorConfirms: the caller repeats its call, unchanged and without a token.
func TestAnOperatorConfirms(t *testing.T) {
	w := newWorld(t)
	call := func(payload string) got {
		return w.send("shop", "POST", "/v1/operations/confirmed/executions", `{"key":"k","payload":`+payload+`}`)
	}
	asked := call("1").refused(428, "confirmation_required")
	path := "/v1/records/" + w.send("operator", "GET", "/v1/records?q=operation:confirmed", "").want(200).str("records.0.id")
	w.send("operator", "GET", path, "").want(200).equal("record.verdict.state", `"unconfirmed"`).equal("record.verdict.advice", `["confirm"]`)
	w.send("operator", "POST", path+"/confirm", `{"reason":"she called","fence":1}`).refused(409, "illegal_transition")
	w.send("operator", "POST", path+"/confirm", `{"reason":"she called","fence":-1}`).refused(400, "invalid_call")
	fence := w.send("operator", "GET", path, "").want(200).num("record.fence")
	g := w.send("operator", "POST", path+"/confirm", fmt.Sprintf(`{"reason":"she called","fence":%d}`, fence)).want(200)
	g.equal("record.settled.by", `"operator"`).equal("record.settled.reason", `"she called"`).equal("record.status", `"failed"`)
	if who := g.str("record.settled.who"); who == "" {
		t.Errorf("%s", g.Raw)
	}
	v := w.send("operator", "GET", path, "").want(200).equal("record.verdict.state", `"confirmed"`)
	if says := v.str("record.verdict.says"); !strings.HasPrefix(says, "not begun: confirmed by ") || !strings.Contains(says, "she called") {
		t.Error(says)
	}
	w.send("operator", "POST", path+"/confirm", `{"reason":"again"}`).refused(409, "illegal_transition")
	call("2").refused(422, "conflict")
	x := call("1").want(201)
	w.on(x, "shop", "complete", `{"result":1}`).want(200)
	call("1").want(200).equal("decision", `"replay"`)
	w.send("operator", "POST", path+"/confirm", `{"reason":"again"}`).refused(409, "illegal_transition")
	if strings.Contains(string(g.Raw), asked.str("challenge.token")) {
		t.Error("the token is shown")
	}
}

func TestMessages(t *testing.T) {
	w := newWorld(t)
	x := w.begin("shop", "charge", "k")
	const sent = `{"result":1,"messages":[{"name":"mail","destination":"mailer","payload":{"to":"a@b"}},{"name":"raw","destination":"queue","payload_base64":"AAE=","order":"a"}]}`
	w.on(x, "shop", "complete", strings.Replace(sent, `"AAE="`, `"?"`, 1)).refused(400, "invalid_call")
	w.on(x, "shop", "complete", strings.Replace(sent, `"raw"`, `"mail"`, 1)).refused(400, "invalid_call")
	g := w.on(x, "shop", "complete", sent).want(200)
	g.equal("record.messages.0.content_type", `"application/json"`).equal("record.messages.0.payload_bytes", "12").equal("record.messages.0.state", `"pending"`)
	g.equal("record.messages.1.order", `"a"`).equal("record.messages.1.payload_bytes", "2")
	w.on(x, "shop", "complete", sent).want(200) // again, after a lost answer

	path := "/v1/records/" + x.str("record.id") + "/messages/" + g.str("record.messages.0.id")
	why := `{"reason":"the mailer is gone"}`
	w.send("operator", "POST", path+"/discard", why).refused(409, "illegal_transition")
	w.send("operator", "POST", path+"x/discard", why).refused(404, "not_found")
	w.send("evilroot", "POST", path+"/discard", why).refused(404, "not_found")
	w.send("operator", "POST", "/v1/records/"+x.str("record.id")+"/purge", why).refused(409, "illegal_transition")
}

func TestASettledCallSendsWhatTheOperatorSays(t *testing.T) {
	w := newWorld(t)
	x := w.begin("shop", "charge", "k")
	w.on(x, "shop", "hold", `{"reason":"no answer"}`).want(200)
	path := "/v1/records/" + x.str("record.id") + "/settle"
	const told = `"messages":[{"name":"mail","destination":"mailer","payload":{"to":"a@b"}}],"reason":"the provider has it"}`
	w.send("operator", "POST", path, `{"outcome":"rejected",`+told).refused(400, "invalid_call")
	g := w.send("operator", "POST", path, `{"outcome":"completed",`+told).want(200)
	g.equal("record.messages.0.name", `"mail"`).equal("record.messages.0.state", `"pending"`)
}

func TestCompensation(t *testing.T) {
	w := newWorld(t)
	x := w.begin("shop", "refundable", "k")
	path := "/v1/records/" + x.str("record.id") + "/compensate"
	why := `{"reason":"sent to the wrong address"}`
	w.send("operator", "POST", path, why).refused(409, "illegal_transition")
	w.on(x, "shop", "complete", `{"result":1}`).want(200)
	w.send("evilroot", "POST", path, why).refused(404, "not_found")
	for range 2 {
		g := w.send("operator", "POST", path, why).want(200)
		g.equal("record.compensation.state", `"done"`).equal("record.compensation.operation", `"refund"`).equal("record.compensation.reason", `"sent to the wrong address"`)
		w.send("operator", "GET", "/v1/records/"+g.str("record.compensation.record"), "").want(200).equal("record.result", `"undone"`)
	}
	y := w.begin("shop", "charge", "k")
	w.on(y, "shop", "complete", `{"result":1}`).want(200)
	w.send("operator", "POST", "/v1/records/"+y.str("record.id")+"/compensate", why).refused(501, "unsupported")
}

// park parks a message, as a dispatcher does.
func (w *world) park(record, message string) {
	w.t.Helper()
	id, err := store.DecodeID(record)
	if err == nil {
		_, err = w.engine.Internal().SettleMessage(w.t.Context(), id, message, store.MessageFinding{State: store.MessageParked})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
