package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/forrst"
)

// bank stands for the bank. It charges whatever it is asked to, as often as it is asked.
type bank struct {
	mu      sync.Mutex
	charges map[string]int // by order
}

// charge is the function payments.charge.
func (b *bank) charge(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
	var args struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	if err := json.Unmarshal(r.Arguments, &args); err != nil || args.Order == "" {
		return nil, &forrst.Error{Code: forrst.InvalidArguments, Message: "An order is required", Source: forrst.At("call", "arguments", "order")}
	}
	if args.Amount <= 0 {
		return nil, &forrst.Error{Code: forrst.InvalidArguments, Message: "The amount must be above zero", Source: forrst.At("call", "arguments", "amount")}
	}
	// A crash while the bank is asked holds the call, and nobody asks again.
	charge, err := semel.Effect(ctx, x, "bank", func(context.Context, string) (string, error) { return b.ask(args.Order), nil })
	if err != nil {
		return nil, err
	}
	return map[string]string{"charge_id": charge, "status": "succeeded"}, nil
}

func (b *bank) ask(order string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charges == nil {
		b.charges = map[string]int{}
	}
	b.charges[order]++
	return fmt.Sprintf("ch_%s_%d", order, b.charges[order])
}

// count is how many orders were charged, and how many charges there were.
func (b *bank) count() (orders, charges int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.charges {
		charges += n
	}
	return len(b.charges), charges
}
