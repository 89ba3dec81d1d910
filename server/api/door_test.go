package api

import (
	"strconv"
	"testing"

	"github.com/semelhq/semel"
)

// The API doesn't end calls that another door began, nor calls of operations that belong
// to one.
func TestOnlyWhatWasBegunHereIsEndedHere(t *testing.T) {
	ends := map[string]string{"complete": `{"result":"forged"}`, "fail": `{"error":{"code":"x"}}`, "reject": `{"error":{"code":"x"}}`, "abort": "", "hold": `{"reason":"x"}`, "abandon": `{"reason":"x"}`, "renew": ""}
	reserved := ""
	w := newWorld(t, func(o *Options) { o.Reserved = func(operation string) bool { return operation == reserved } })
	for _, door := range []string{"http", ""} {
		ans, err := w.engine.Begin(t.Context(), semel.Call{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "of " + door, Door: door})
		if err != nil {
			t.Fatal(err)
		}
		execution := ans.Record.ID.Encode() + "." + strconv.FormatInt(ans.Record.Fence, 10)
		for end, body := range ends {
			w.send("shop", "POST", "/v1/executions/"+execution+"/"+end, body).refused(404, "not_found")
		}
		if err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("real")}); err != nil {
			t.Error(err)
		}
	}
	x := w.begin("shop", "charge", "k")
	reserved = "charge"
	for end, body := range ends {
		w.on(x, "shop", end, body).refused(404, "not_found")
	}
	reserved = ""
	w.on(x, "shop", "complete", "").want(200)
}
