package semelmcp_test

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/contrib/semelmcp"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/store/memstore"
)

func Example() {
	ctx, made := context.Background(), 0
	server := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "refund"}, func(_ context.Context, _ *sdk.CallToolRequest, in refund) (*sdk.CallToolResult, any, error) {
		made++
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("re_%d of %s", made, in.Order)}}}, nil, nil
	})
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// snippet: Guard
	guard, err := semelmcp.New(engine, semelmcp.Options{
		Operation: semel.Operation{Name: "shop.tools", Remember: mcp.HintWindow},
		Tools:     map[string]mcp.Tool{"refund": {Fields: []string{"/order_id"}}},
	})
	if err != nil {
		panic(err)
	}
	server.AddReceivingMiddleware(guard.Middleware)
	// end snippet

	there, here := sdk.NewInMemoryTransports()
	if _, err := server.Connect(ctx, there, nil); err != nil {
		panic(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, here, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	for range 3 {
		res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "refund", Arguments: refund{"o-1", 1250}})
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Content[0].(*sdk.TextContent).Text)
	}
	fmt.Println(made, "refund")
	// Output:
	// re_1 of o-1
	// re_1 of o-1
	// re_1 of o-1
	// 1 refund
}
