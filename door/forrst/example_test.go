package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/store/memstore"
)

func ExampleNew() {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: New
	service, err := forrst.New(engine, forrst.Options{
		Service: "payments-api",
		Functions: []forrst.Function{{
			Name:      "payments.charge",
			Operation: semel.Operation{Name: "payments.charge", Financial: true},
			Versions:  []forrst.Version{{Version: "1.0.0", Run: chargeCard}},
		}},
	})
	// end snippet
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(service)
	defer server.Close()
	for _, id := range []string{"req_1", "req_2"} {
		request := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"` + id + `",
			"call":{"function":"payments.charge","version":"1.0.0","arguments":{"amount":100}},
			"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"order-7"}}]}`
		resp, err := http.Post(server.URL, "application/json", strings.NewReader(request))
		if err != nil {
			panic(err)
		}
		var answer struct {
			Result     json.RawMessage
			Extensions []struct{ Data struct{ Status string } }
		}
		_ = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		fmt.Printf("%s %s %s\n", id, answer.Extensions[0].Data.Status, answer.Result)
	}
	// Output:
	// req_1 processed {"charge_id":"ch_1"}
	// req_2 cached {"charge_id":"ch_1"}
}

func ExampleVersion() {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: Arguments
	service, err := forrst.New(engine, forrst.Options{Functions: []forrst.Function{{
		Name: "payments.charge",
		Versions: []forrst.Version{{Version: "1.0.0", Run: chargeCard, Arguments: json.RawMessage(`{
			"required": ["amount"],
			"properties": {"amount": {"type": "integer", "minimum": 1}},
			"additionalProperties": false
		}`)}},
	}}})
	// end snippet
	if err != nil {
		panic(err)
	}
	x := service.Explain([]byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1",
		"call":{"function":"payments.charge","version":"1.0.0","arguments":{"amount":0}},
		"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"order-7"}}]}`))
	fmt.Println(x.Status, x.Errors)
	// Output:
	// 422 SCHEMA_VALIDATION_FAILED at /call/arguments/amount: It does not fit minimum
}

// snippet: Handler
func chargeCard(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
	var args struct{ Amount int }
	if err := json.Unmarshal(r.Arguments, &args); err != nil || args.Amount <= 0 {
		return nil, &forrst.Error{Code: forrst.InvalidArguments, Message: "The amount must be above zero", Source: forrst.At("call", "arguments", "amount")}
	}
	charge, err := semel.Effect(ctx, x, "bank", func(ctx context.Context, key string) (string, error) {
		return "ch_1", nil // ask the bank, with key as its idempotency key
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{"charge_id": charge}, nil
}

// end snippet

func ExampleUpstream() {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: Upstream
	upstream, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: "http://127.0.0.1:9000/rpc"})
	if err != nil {
		panic(err)
	}
	service, err := forrst.New(engine, forrst.Options{Functions: []forrst.Function{
		{Name: "payments.charge", Versions: []forrst.Version{{Version: "1.0.0", Run: upstream.Run}}},
		{Name: "payments.show", Operation: semel.Operation{Name: "payments.show", Class: semel.ReadOnly}, Versions: []forrst.Version{{Version: "1.0.0", Run: upstream.Run}}},
	}})
	// end snippet
	fmt.Println(service != nil, err)
	// Output: true <nil>
}
