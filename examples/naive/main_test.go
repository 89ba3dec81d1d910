package main

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/check/a2a"
	"github.com/semelhq/semel/internal/check/activitypub"
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
	// A bank takes its time, so that deliveries at once meet on a busy machine, too.
	bank := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: l.Addr().String()})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(20 * time.Millisecond)
		bank.ServeHTTP(w, r)
	}))
	defer slow.Close()
	srv := httptest.NewServer(newService(slow.URL, "whsec_test").routes())
	defer srv.Close()
	report, err := kit.Run(t.Context(), check.Options{URL: srv.URL + path, Listener: l, Patience: 2 * time.Second, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, v := range report.Verdicts {
		// Which of two charges is remembered is a matter of luck, and so is who comes first where a sender leaves.
		if v.Outcome == check.Broken && v.ID != "processing.ends" && v.ID != "gone.once" {
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

// TestInbox: deliveries at once are handled more than once, and activities that have no name at all.
func TestInbox(t *testing.T) {
	t.Parallel()
	judged(t, &activitypub.Kit, "/inbox", map[string]*string{"provider": new(""), "actors": new("127.0.0.1:0"), "known-as": new(""), "type": new("Create")},
		"concurrent.once", "id.missing", "id.malformed")
}

// TestAgent: a message is a new task as often as it is delivered.
func TestAgent(t *testing.T) {
	t.Parallel()
	judged(t, &a2a.Kit, "/agent", map[string]*string{"provider": new(""), "text": new("{{unique}}")},
		"duplicates.task", "duplicates.once")
}
