package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
)

type charge struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

// TestGoSDK: stock clients and a stock server of the official SDK for Go, of either generation,
// answering by JSON and by streams, with sessions and without.
func TestGoSDK(t *testing.T) {
	for _, c := range []struct {
		version string
		opts    sdk.StreamableHTTPOptions
	}{
		{"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true}},
		{"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
		{"2025-11-25", sdk.StreamableHTTPOptions{}},
		{"2025-06-18", sdk.StreamableHTTPOptions{JSONResponse: true}},
	} {
		t.Run(fmt.Sprintf("%s, JSON %t", c.version, c.opts.JSONResponse), func(t *testing.T) {
			var charges, counted atomic.Int64
			server := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
			sdk.AddTool(server, &sdk.Tool{Name: "charge", Description: "charges an order"}, func(ctx context.Context, r *sdk.CallToolRequest, in charge) (*sdk.CallToolResult, any, error) {
				_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
				text := fmt.Sprintf("charge %d of %s", charges.Add(1), in.Order)
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
			})
			sdk.AddTool(server, &sdk.Tool{Name: "count"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
				counted.Add(1)
				return &sdk.CallToolResult{}, nil, nil
			})
			handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &c.opts)
			upstream, _ := url.Parse(listen(t, handler))
			g, err := mcp.NewGateway(semelhttptest.New(t, nil).Guard, mcp.GatewayOptions{
				Operation: operation, Upstream: upstream, Tools: map[string]mcp.Tool{"charge": {Fields: []string{"/order"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			client := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: strictly(t, g)}, &sdk.ClientSessionOptions{ProtocolVersion: c.version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if got := session.InitializeResult().ProtocolVersion; got != c.version {
				t.Errorf("they speak %s", got)
			}
			list, err := session.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 2 {
				t.Errorf("%v, %v", list, err)
			}
			for _, order := range []string{"o-1", "o-1", "o-2", "o-1"} {
				params := &sdk.CallToolParams{Name: "charge", Arguments: charge{order, 42}}
				params.SetProgressToken("p")
				got, err := session.CallTool(t.Context(), params)
				if err != nil {
					t.Fatal(err)
				}
				if text := got.Content[0].(*sdk.TextContent).Text; text != map[string]string{"o-1": "charge 1 of o-1", "o-2": "charge 2 of o-2"}[order] {
					t.Errorf("%s: %s", order, text)
				}
			}
			if got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "charge", Arguments: charge{"o-1", 43}}); err != nil || !got.IsError {
				t.Errorf("other arguments: %+v, %v", got, err)
			}
			if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "none"}); err == nil {
				t.Error("a tool that isn't there")
			}
			if charges.Load() != 2 {
				t.Errorf("%d charges", charges.Load())
			}
			for n := range 3 { // nothing tells these apart but that their answers arrive
				if got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "count"}); err != nil || counted.Load() != int64(n+1) {
					t.Errorf("%d: %+v, %v", counted.Load(), got, err)
				}
			}
		})
	}
}
