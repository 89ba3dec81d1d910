package mcp_test

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// waiting is the record that waits for its confirmation, or did.
func (w *world) waiting(t *testing.T) semel.Record {
	t.Helper()
	page, err := w.Engine.Search(t.Context(), store.Query{Operation: "payments"})
	if err != nil || len(page.Records) == 0 {
		t.Fatal(page, err)
	}
	return page.Records[0]
}

// TestAnOperatorConfirms: a client that can't ask a person is told who can, and how. When that has
// been done, the same call runs once.
func TestAnOperatorConfirms(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-X.2", "IDS-X.3")
	confirming := semel.Operation{Name: "payments", Confirmation: &semel.ConfirmationPolicy{TTL: 3 * time.Minute}}
	tools := map[string]mcp.Tool{"pay": {Operation: confirming}, "buy": {Operation: confirming}, "refund": {Operation: confirming, Fields: []string{"/order_id"}}}
	said := regexp.MustCompile(`semel records confirm '(payments/[0-9a-f]{12})' --reason`)
	told := regexp.MustCompile(`idempotency_key (\S+) beside`)
	const arguments = `{"order_id":"o-1"}`
	for name, c := range map[string]struct {
		tool, meta string
		echo       time.Duration
	}{
		"no key": {"pay", "", 0}, "no key and no window": {"pay", "", -1}, "a key": {"pay", `"idempotency-key":"k-1"`, 0}, "fields": {"refund", "", -1},
	} {
		for _, v := range all {
			t.Run(name+", "+string(v), func(t *testing.T) {
				w := seen(t, mcp.GatewayOptions{Echo: c.echo, Tools: tools})
				_, first := w.call(v, c.tool, arguments, "", c.meta)
				found := said.FindStringSubmatch(first.said())
				if first.code != "confirmation_required" || first.result["isError"] != true || found == nil || !strings.Contains(first.said(), "exactly the same arguments") {
					t.Fatalf("%s", first.text)
				}
				rec := w.waiting(t)
				if rec.ID.String() != found[1] {
					t.Errorf("it names %s instead of %s", found[1], rec.ID.String())
				}
				again := arguments
				if key := told.FindStringSubmatch(first.said()); (key != nil) != (name == "no key and no window") {
					t.Errorf("%s", first.said())
				} else if key != nil {
					again = `{"idempotency_key":"` + key[1] + `","order_id":"o-1"}`
				}
				if _, got := w.call(v, c.tool, again, "", c.meta); got.code != "confirmation_required" || w.runs.Load() != 0 || w.waiting(t).ID != rec.ID {
					t.Errorf("asked again: %s", got.text)
				}
				w.Store.Advance(2 * time.Minute) // longer than the window of the echo, if its answer had arrived
				if _, err := w.Engine.Confirm(t.Context(), rec.ID, 0, "ann", "she called"); err != nil {
					t.Fatal(err)
				}
				w.Store.Advance(2 * time.Minute)
				for what, got := range map[string]*answer{
					"other arguments": second(w.call(v, c.tool, `{"order_id":"o-2"}`, "", c.meta)),
					"another tool":    second(w.call(v, "buy", again, "", c.meta)),
					"another caller":  second(w.call(v, c.tool, again, "", c.meta, semelhttptest.CallerHeader, "eve")),
				} {
					if got.code != "confirmation_required" && got.code != "conflict" || w.runs.Load() != 0 {
						t.Errorf("%s: %s", what, got.text)
					}
				}
				if _, got := w.call(v, c.tool, again, "", c.meta); got.said() != "run 1" {
					t.Errorf("%s", got.text)
				}
				if _, err := w.Engine.Confirm(t.Context(), rec.ID, 0, "ann", "again"); !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) {
					t.Errorf("confirmed twice: %v", err)
				}
				// An equal call without a key is another one now, which a person confirms, too.
				if _, got := w.call(v, c.tool, again, "", c.meta); (got.code == "confirmation_required") != (name == "no key") || w.runs.Load() != 1 {
					t.Errorf("%s", got.text)
				}
			})
		}
	}
	t.Run("expired", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Tools: tools})
		w.call(modern, "pay", `{}`, "", "")
		rec := w.waiting(t)
		if _, err := w.Engine.Confirm(t.Context(), rec.ID, 0, "ann", ""); err != nil {
			t.Fatal(err)
		}
		w.Store.Advance(3 * time.Minute)
		if _, got := w.call(modern, "pay", `{}`, "", ""); got.code != "confirmation_required" || w.runs.Load() != 0 {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("by the token, and an equal call is another one then", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Tools: tools})
		_, first := w.call(modern, "pay", `{}`, "", "")
		token, _ := member(first.result, "_meta", "io.github.semelhq/confirm").(string)
		for range 2 {
			if _, got := w.call(modern, "pay", `{}`, "", `"io.github.semelhq/confirm":"`+token+`"`); got.said() != "run 1" {
				t.Errorf("%s", got.text)
			}
			if _, got := w.call(modern, "pay", `{}`, "", ""); got.code != "confirmation_required" || w.runs.Load() != 1 {
				t.Errorf("%s", got.text)
			}
		}
	})
	t.Run("and the call comes through another gateway, later", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Tools: tools})
		w.call(modern, "pay", `{}`, "", "")
		w.Store.Advance(170 * time.Second) // longer than the window of the echo
		if _, err := w.Engine.Confirm(t.Context(), w.waiting(t).ID, 0, "ann", ""); err != nil {
			t.Fatal(err)
		}
		w.Store.Advance(170 * time.Second)
		w.gateway.Close()
		upstream, _ := url.Parse(listen(t, w.server) + "/mcp")
		other, err := mcp.NewGateway(w.Guard, mcp.GatewayOptions{Operation: operation, Upstream: upstream, Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(other.Close)
		w.url = strictly(t, other)
		if _, got := w.call(modern, "pay", `{}`, "", ""); got.said() != "run 1" {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("many at the same time", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Tools: tools})
		w.call(modern, "pay", `{}`, "", "")
		if _, err := w.Engine.Confirm(t.Context(), w.waiting(t).ID, 0, "ann", ""); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				if _, got := w.call(modern, "pay", `{}`, "", ""); got.said() != "run 1" && got.code != "confirmation_required" {
					t.Errorf("%s", got.text)
				}
			})
		}
		if calls.Wait(); w.runs.Load() != 1 {
			t.Errorf("%d runs", w.runs.Load())
		}
	})
}

func second(_ string, a *answer) *answer { return a }
