package main

import (
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/check/forrst"
	"github.com/semelhq/semel/internal/check/webhook"
)

// judged checks the service, and wants just these sentences broken.
func judged(t *testing.T, kit *check.Kit, path string, flags map[string]*string, broken ...string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(newService("http://"+l.Addr().String(), "whsec_test").routes())
	defer srv.Close()
	report, err := kit.Run(t.Context(), check.Options{URL: srv.URL + path, Listener: l, Patience: 2 * time.Second, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, v := range report.Verdicts {
		if v.Outcome == check.Broken && v.ID != "processing.ends" { // which of two charges is remembered is a matter of luck
			found[v.ID] = v.Saw
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, slices.Sorted(slices.Values(broken))) {
		t.Errorf("broken are %q, not %q: %v", got, broken, found)
	}
}

// TestForrst: the memory of the service helps in a row, and not at once, nor against other calls
// under the same key, nor after a failure.
func TestForrst(t *testing.T) {
	t.Parallel()
	judged(t, &forrst.Kit, "/forrst", nil, "scope.version", "scope.function", "concurrent.once", "concurrent.answers",
		"processing.refused", "processing.once", "conflict.refused", "errors.cached", "errors.unknown")
}

// TestWebhook: it helps as little against deliveries at once, and a kept delivery is as good as new.
func TestWebhook(t *testing.T) {
	t.Parallel()
	judged(t, &webhook.Kit, "/webhooks/stripe", map[string]*string{"source": new("stripe"), "secret": new("whsec_test"), "delivery": new("")},
		"signature.old", "concurrent.once", "gone.left")
}
