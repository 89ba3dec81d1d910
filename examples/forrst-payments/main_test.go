package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/clause"
)

func TestStorm(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1", "FOR-CONF.1", "FOR-ID.1")
	var out bytes.Buffer
	if err := storm(t.Context(), &out, 100); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, line := range []string{"charged   100 orders by 100 charges", "answered  500 times", "wrong     0 answers", "IDEMPOTENCY_CONFLICT"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, &out)
		}
	}
}

// TestRestart: another process on the same store gives the same answer.
func TestRestart(t *testing.T) {
	clause.Proves(t, "FOR-DUP.1", "FOR-STORE.1")
	dir, b := t.TempDir(), &bank{}
	for _, status := range []string{"processed", "cached"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, listener, dir, b) }()
		c := &client{url: "http://" + listener.Addr().String() + "/forrst", http: http.DefaultClient}
		a, err := c.charge(t.Context(), "lamp", 1, 100)
		if err != nil || len(a.Extensions) != 1 || a.Extensions[0].Data.Status != status || a.Result.ChargeID != "ch_lamp_1" {
			t.Errorf("%+v, %v", a, err)
		}
		for amount, code := range map[int]string{0: "INVALID_ARGUMENTS"} {
			if a, err := c.charge(t.Context(), "refused", 1, amount); err != nil || len(a.Errors) != 1 || a.Errors[0].Code != code {
				t.Errorf("%+v, %v", a, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
