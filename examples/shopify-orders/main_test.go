package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestShopifyOrders(t *testing.T) {
	var out bytes.Buffer
	ok, err := run(t.Context(), []string{"--json", "--orders", "60"}, &out)
	var s summary
	if err != nil || json.Unmarshal(out.Bytes(), &s) != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	// The numbers, and not only the example's own verdict on them.
	if s.Orders != 60 || s.Entered != 60 || s.Twice != 0 || s.Deliveries != 300 || s.Restarts != 1 || s.Refused != 1 || s.Conflicts != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := run(t.Context(), []string{"--orders", "0"}, &out); err == nil {
		t.Error("no orders")
	}
}

// TestREADME runs what the README says, and wants what it shows, but for the numbers.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\$ go run ./examples/shopify-orders(.*?)\n(.*?)` + "```").FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("the README shows no run")
	}
	var out bytes.Buffer
	if ok, err := run(t.Context(), strings.Fields(m[1]), &out); err != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	words := regexp.MustCompile(`[0-9]+ senders`) // how many hang up is up to chance
	if got, want := words.ReplaceAllString(out.String(), "N senders"), words.ReplaceAllString(m[2], "N senders"); got != want {
		t.Errorf("it prints:\n%s\nand the README shows:\n%s", got, want)
	}
}
