package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
)

// forrstDoor adds Forrst's idempotency extension to a service that lacks it.
type forrstDoor struct{}

const forrstPath = "/forrst"

func (forrstDoor) name() string { return "Forrst" }
func (forrstDoor) slug() string { return "forrst" }

func (forrstDoor) configure(c *setup) error {
	c.add("operations", "- {name: functions.charge, financial: true, lease: %s}", tourLease)
	c.add("forrst", `
- path: %s
  upstream: %q
  functions: [{name: payments.charge, versions: [1.0.0], operation: functions.charge}]`, forrstPath, c.upstream+forrstPath)
	return nil
}

// forrstEnvelope has what both requests and responses need here.
type forrstEnvelope struct {
	Protocol struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"protocol"`
	ID   string `json:"id"`
	Call *struct {
		Function  string `json:"function"`
		Version   string `json:"version"`
		Arguments order  `json:"arguments"`
	} `json:"call,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Errors []struct {
		Code forrst.Code `json:"code"`
	} `json:"errors,omitempty"`
	Extensions []map[string]any `json:"extensions,omitempty"`
}

func (forrstDoor) serve(p *provider, mux *http.ServeMux) {
	mux.HandleFunc("POST "+forrstPath, func(w http.ResponseWriter, r *http.Request) {
		var e forrstEnvelope
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Call == nil {
			http.Error(w, "this is no request of Forrst", http.StatusBadRequest)
			return
		}
		o := e.Call.Arguments
		p.chargeAs(w, r, o, keyOf(o), func(c Charge) (int, any) {
			e.Call, e.Extensions, e.Result = nil, nil, document(c)
			return http.StatusOK, e
		})
	})
}

func (forrstDoor) deliver(ctx context.Context, t *target, o order, copy int) (reply, error) {
	request := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%s_%d",`+
		`"call":{"function":"payments.charge","version":"1.0.0","arguments":%s},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":%q}}]}`, o.Order, copy, document(o), keyOf(o))
	a, err := t.client.post(ctx, t.guard+forrstPath, t.bearer(), []byte(request))
	if err != nil {
		return reply{}, err
	}
	var e forrstEnvelope
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		return reply{same: a.body}, nil
	}
	if len(e.Errors) == 0 {
		return reply{final: true, good: a.ok(), same: strings.TrimSpace(string(e.Result))}, nil
	}
	code := e.Errors[0].Code
	return reply{final: code == forrst.IdempotencyConflict || code == forrst.InvalidArguments, same: string(code)}, nil
}

func (forrstDoor) result(c Charge) semel.Result { return semel.Result{Data: document(c)} }
