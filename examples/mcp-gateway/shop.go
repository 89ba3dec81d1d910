package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ledger is the payment provider's. It refunds as often as anybody asks.
type ledger struct {
	mu      sync.Mutex
	refunds map[string][]string // their ids, by order
	made    int
	// told, if it isn't nil, is called with each refund.
	told func(id string, of refund)
}

// refund has the arguments of the tool refund.
type refund struct {
	Order string `json:"order_id" jsonschema:"the number of the order"`
	Cents int    `json:"cents" jsonschema:"how much to pay back"`
}

// question has the arguments of the tool refunds.
type question struct {
	Order string `json:"order_id" jsonschema:"the number of the order"`
}

func (l *ledger) pay(r refund) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refunds == nil {
		l.refunds = map[string][]string{}
	}
	l.made++
	id := fmt.Sprintf("re_%d", l.made)
	l.refunds[r.Order] = append(l.refunds[r.Order], id)
	if l.told != nil {
		l.told(id, r)
	}
	return id
}

func (l *ledger) of(order string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refunds[order]
}

// count is how many refunds there are.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// newShop makes a plain server of MCP, which has no keys and refunds at each call.
func newShop(l *ledger) http.Handler {
	server := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "refund", Description: "Pays back an order"}, func(_ context.Context, _ *sdk.CallToolRequest, in refund) (*sdk.CallToolResult, any, error) {
		return text(fmt.Sprintf("Refunded %d cents of order %s as %s.", in.Cents, in.Order, l.pay(in))), nil, nil
	})
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	sdk.AddTool(server, &sdk.Tool{Name: "refunds", Description: "Lists the refunds of an order", Annotations: reads}, func(_ context.Context, _ *sdk.CallToolRequest, in question) (*sdk.CallToolResult, any, error) {
		ids, err := json.Marshal(l.of(in.Order))
		return text(string(ids)), nil, err
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}

func text(what string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: what}}}
}

// agent calls tools with a stock client, which sends no key. Like any agent, it asks again when it
// gets no answer.
type agent struct {
	url    func() string
	client *http.Client
}

// errNobodyKnows means that a person has to find out what happened.
var errNobodyKnows = errors.New("nobody knows whether the order was refunded")

// refund asks once for a refund, and returns the answer. After any error but errNobodyKnows it may
// ask again.
func (a *agent) refund(ctx context.Context, r refund) (string, error) {
	session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{Endpoint: a.url() + "/mcp", HTTPClient: a.client, MaxRetries: -1}, nil)
	if err != nil {
		return "", err
	}
	defer session.Close()
	res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "refund", Arguments: r})
	if err != nil {
		return "", err
	}
	said := res.Content[0].(*sdk.TextContent).Text
	if !res.IsError {
		return said, nil
	}
	facts, _ := res.Meta["io.github.semelhq/refusal"].(map[string]any)
	if facts["action"] != "verify" {
		return "", errors.New(said)
	}
	// The tool may have run. The answer names the tools that show whether it has.
	seen, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "refunds", Arguments: question{r.Order}})
	if err != nil {
		return "", err
	}
	if ids := seen.Content[0].(*sdk.TextContent).Text; ids != "null" {
		return "Refunded as " + ids, nil
	}
	return "", errNobodyKnows
}

// insist asks for a refund until it gets an answer.
func (a *agent) insist(ctx context.Context, r refund) (said string, err error) {
	for ctx.Err() == nil {
		if said, err = a.refund(ctx, r); err == nil || errors.Is(err, errNobodyKnows) {
			return said, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return "", ctx.Err()
}

// flaky is a connection that breaks on the way back, each second time that a tool is called: the
// server has done the work, and the agent gets no answer.
type flaky struct {
	mu    sync.Mutex
	calls int
}

// RoundTrip implements [http.RoundTripper].
func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Header.Get("Mcp-Name") != "refund" {
		return resp, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls%2 == 1 {
		resp.Body.Close() // with the answer in it, so the connection ends
		return nil, errors.New("the connection broke")
	}
	return resp, nil
}
