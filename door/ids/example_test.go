package ids_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
)

func ExampleNewRegistry() {
	cancel := func(_ context.Context, _ semel.Execution, d *ids.Derivation) (semel.Result, error) {
		return ids.Done("Cancelled", map[string]any{"orders": d.Command.Intent.Target.IDs()})
	}
	registry, err := ids.NewRegistry([]ids.Entry{{
		Entity: "order", Action: "cancel",
		Window:  ids.Duration(48 * time.Hour),
		Args:    ids.Args{Strip: []ids.Path{"client_timestamp"}},
		Handler: ids.HandlerEntry{Func: "cancelOrder"},
	}}, ids.LoadOptions{Bindings: &ids.Bindings{Handlers: map[string]ids.Handler{"cancelOrder": cancel}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, _ := registry.Lookup("order", "cancel")
	fmt.Println(e.Name(), e.Class, e.Window, e.Evidence)
	// Output: order.cancel I1 2d decisions
}
