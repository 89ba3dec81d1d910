// Command shopify-orders takes the webhooks of a shop, each several times and in any
// order, and enters each order once. Its README says more.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "shopify-orders:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// summary is what the example prints.
type summary struct {
	Orders     int `json:"orders"`     // that were placed in the shop
	Deliveries int `json:"deliveries"` // of their webhooks
	Restarts   int `json:"restarts"`   // of the receiver, in the middle
	HungUp     int `json:"hung_up"`    // deliveries whose sender didn't wait for the answer
	Entered    int `json:"entered"`    // orders in the order book
	Twice      int `json:"twice"`      // that are in it more than once
	Refused    int `json:"refused"`    // deliveries that the shop had not signed
	Conflicts  int `json:"conflicts"`  // deliveries of an event with another content
}

// right reports whether the numbers are as they must be.
func (s *summary) right() bool {
	return s.Entered == s.Orders && s.Twice == 0 && s.Refused == 1 && s.Conflicts == 1
}

// run is the program. It reports whether every order was entered once.
func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	flags := flag.NewFlagSet("shopify-orders", flag.ContinueOnError)
	orders := flags.Int("orders", 200, "orders that are placed")
	copies := flags.Int("copies", 5, "deliveries of each webhook")
	asJSON := flags.Bool("json", false, "print the numbers as JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *orders < 2 || *copies < 1 {
		return false, errors.New("at least 2 orders and 1 copy")
	}
	dir, err := os.MkdirTemp("", "shopify-orders-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)

	book := &book{entered: map[int]int{}}
	s, err := play(ctx, dir, book, *orders, *copies)
	if err != nil {
		return false, err
	}
	s.Entered, s.Twice = book.count()
	if *asJSON {
		return s.right(), json.NewEncoder(out).Encode(s)
	}
	fmt.Fprintf(out, `%d orders, %d deliveries of their webhooks, %d restarts, %d senders hung up
%d orders entered, %d of them twice
%d delivery refused that the shop had not signed, %d that changed an order
`, s.Orders, s.Deliveries, s.Restarts, s.HungUp, s.Entered, s.Twice, s.Refused, s.Conflicts)
	return s.right(), nil
}
