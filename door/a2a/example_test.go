package a2a_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// orders is an agent that orders something for each message.
type orders struct{ placed int }

func (o *orders) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		o.placed++
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart(fmt.Sprintf("order %d is placed", o.placed))), nil)
	}
}

func (o *orders) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(func(sdk.Event, error) bool) {}
}

func ExampleWrap() {
	agent := &orders{}
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: Wrap
	handler, err := a2a.Wrap(engine, a2asrv.NewHandler(agent), a2a.Options{Operation: semel.Operation{Name: "agent.messages"}})
	// end snippet
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(a2asrv.NewJSONRPCHandler(handler))
	defer server.Close()
	for try := range 3 {
		fmt.Println(post(server.URL, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":{"message":
			{"messageId":"9d0f1f7e-7f0a-4b4e-9f0e-2f9d3a7c1b55","role":"ROLE_USER","parts":[{"text":"a bicycle"}]}}}`, try)))
	}
	fmt.Println(agent.placed, "order")
	// Output:
	// order 1 is placed
	// order 1 is placed
	// order 1 is placed
	// 1 order
}

func ExampleNewGateway() {
	agent := &orders{}
	stock := httptest.NewServer(a2asrv.NewRESTHandler(a2asrv.NewHandler(agent)))
	defer stock.Close()
	upstream, err := url.Parse(stock.URL)
	if err != nil {
		panic(err)
	}
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: Gateway
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		panic(err)
	}
	gateway, err := a2a.NewGateway(guard, a2a.GatewayOptions{
		Upstream:  upstream, // the agent's URL
		Operation: semel.Operation{Name: "agent.messages"},
	})
	// end snippet
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(gateway)
	defer server.Close()
	for range 3 {
		fmt.Println(post(server.URL+"/message:send", `{"message":{"messageId":"9d0f1f7e-7f0a-4b4e-9f0e-2f9d3a7c1b55","role":"ROLE_USER","parts":[{"text":"a bicycle"}]}}`))
	}
	fmt.Println(agent.placed, "order")
	// Output:
	// order 1 is placed
	// order 1 is placed
	// order 1 is placed
	// 1 order
}

// post sends a message and returns the text of the answer.
func post(url, message string) string {
	resp, err := http.Post(url, "application/json", strings.NewReader(message))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(string(raw), `"text":"`)
	text, _, _ = strings.Cut(text, `"`)
	return text
}
