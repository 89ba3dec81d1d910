package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
)

// TestGoSDKRounds: a stock client answers the questions of a stock server, and those of the gateway
// about a call that a person is to confirm. Each call runs once.
func TestGoSDKRounds(t *testing.T) {
	var paid, booked atomic.Int64
	server := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "pay"}, func(_ context.Context, r *sdk.CallToolRequest, in charge) (*sdk.CallToolResult, any, error) {
		if r.Params.RequestState != "" || r.Params.InputResponses != nil {
			t.Errorf("the server got %q", r.Params.RequestState)
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("paid %d for %s", paid.Add(1), in.Order)}}}, nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "book"}, func(_ context.Context, r *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		if r.Params.RequestState == "" {
			question := &sdk.ElicitParams{Message: "Window or aisle?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"seat": question}, RequestState: "one for all"}, nil, nil
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("booked %d", booked.Add(1))}}}, nil, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	g, err := mcp.NewGateway(semelhttptest.New(t, nil).Guard, mcp.GatewayOptions{
		Operation: operation, Upstream: urlOf(t, listen(t, handler)),
		Tools: map[string]mcp.Tool{"pay": {Operation: semel.Operation{Name: "payments", Confirmation: &semel.ConfirmationPolicy{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	action, asked := "accept", 0
	client := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked++
			if !strings.Contains(r.Params.Message, "o-1") && !strings.Contains(r.Params.Message, "aisle") {
				t.Errorf("asked %q", r.Params.Message)
			}
			return &sdk.ElicitResult{Action: action, Content: map[string]any{}}, nil
		},
	})
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: strictly(t, g)}, &sdk.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	call := func(tool string, arguments any) string {
		t.Helper()
		got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		return got.Content[0].(*sdk.TextContent).Text
	}
	for n := range 2 {
		if got := call("book", struct{}{}); got != fmt.Sprint("booked ", n+1) {
			t.Errorf("%s", got)
		}
		if got := call("pay", charge{"o-1", n}); got != fmt.Sprintf("paid %d for o-1", n+1) {
			t.Errorf("%s", got)
		}
	}
	action = "decline"
	if got := call("pay", charge{"o-1", 7}); !strings.Contains(got, "onfirm") || paid.Load() != 2 || asked != 5 {
		t.Errorf("%s: %d payments, asked %d times", got, paid.Load(), asked)
	}
}
