package ids_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/internal/rig/clause"
)

// answering is a handler's URL that gives one answer.
func answering(t *testing.T, status int, media, body string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// What a handler at a URL says of its refusal is in the outcome, and in that of each duplicate.
func TestAHandlersWordsReachThePerson(t *testing.T) {
	clause.Proves(t, "IDS-IX.6", "IDS-IX.5")
	const plain, hiding = `{entity: order, action: refund, handler: {url: 'URL'}}`, `{entity: order, action: refund, redact: [{path: card}], handler: {url: 'URL'}}`
	for name, c := range map[string]struct {
		entry  string
		status int
		body   string
		want   ids.Status
		reason string
		detail string
	}{
		"a summary":                 {plain, 422, `{"summary":"There is no order R-9."}`, ids.StatusRejected, "status_422", "There is no order R-9."},
		"a problem document":        {plain, 404, `{"title":"No such order","detail":"There is no order R-9.","code":"no_order"}`, ids.StatusRejected, "no_order", "There is no order R-9."},
		"only a reason":             {plain, 422, `{"reason":"no_order"}`, ids.StatusRejected, "no_order", "the provider answered with status 422"},
		"a failure":                 {plain, 500, `{"summary":"The ledger is closed today."}`, ids.StatusFailed, "failed", "The ledger is closed today."},
		"a failure with a code":     {plain, 500, `{"detail":"The ledger is closed.","code":"closed_today"}`, ids.StatusFailed, "failed", "The ledger is closed. (closed_today)"},
		"no JSON":                   {plain, 422, `There is no order R-9.`, ids.StatusRejected, "status_422", "the provider answered with status 422"},
		"a word of Semel's own":     {plain, 422, `{"code":"confirmation_required","detail":"Press the button."}`, ids.StatusRejected, "status_422", "Press the button."},
		"and another":               {plain, 422, `{"code":"outcome_unknown"}`, ids.StatusRejected, "status_422", "the provider answered with status 422"},
		"an answer without secrets": {hiding, 422, `{"summary":"There is no order R-9."}`, ids.StatusRejected, "status_422", "There is no order R-9."},
		"one with a secret":         {hiding, 422, `{"summary":"The card 4111 is blocked.","card":"4111"}`, ids.StatusRejected, "status_422", "the provider answered with status 422"},
		"one with it further in":    {hiding, 422, `{"summary":"The card 4111 is blocked.","outcome":{"card":"4111"}}`, ids.StatusRejected, "status_422", "the provider answered with status 422"},
	} {
		t.Run(name, func(t *testing.T) {
			g := bare(t, strings.Replace(c.entry, "URL", answering(t, c.status, "application/json", c.body), 1), nil)
			for _, decision := range []string{ids.FirstSeen, ids.DuplicateReplayed} {
				r, err := g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
					TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "order", Action: "refund"},
				})
				if err != nil || r.Decision != decision || r.Status != c.want || r.Reason != c.reason || r.Detail != c.detail {
					t.Errorf("%+v, %v", r, err)
				}
			}
		})
	}
}

// An answer that proves nothing may be a gateway's: the person isn't told its words.
func TestWordsThatProveNothingAreNotTaken(t *testing.T) {
	clause.Proves(t, "IDS-IX.6")
	g := bare(t, `{entity: order, action: refund, handler: {url: '`+answering(t, 504, "application/json", `{"detail":"upstream timed out"}`)+`'}}`, nil)
	r, err := g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
		TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "order", Action: "refund"},
	})
	if err != nil || r.Reason != ids.ReasonUnknownOutcome || strings.Contains(r.Detail, "upstream") {
		t.Errorf("%+v, %v", r, err)
	}
}

// A success has its summary for the person and the rest for programs, whatever else it has.
func TestASuccessKeepsItsSummary(t *testing.T) {
	clause.Proves(t, "IDS-IX.6")
	for body, want := range map[string]ids.Outcome{
		`{"summary":"Refunded.","outcome":{"a":1}}`:          {Summary: "Refunded.", Outcome: json.RawMessage(`{"a":1}`)},
		`{"summary":"Refunded.","outcome":{"a":1},"more":2}`: {Summary: "Refunded.", Outcome: json.RawMessage(`{"a":1}`)},
		`{"summary":"Refunded.","id":1.50}`:                  {Summary: "Refunded.", Outcome: json.RawMessage(`{"id":1.50}`)},
		`{"summary":"Refunded."}`:                            {Summary: "Refunded."},
		`{"summary":7,"id":1}`:                               {Outcome: json.RawMessage(`{"summary":7,"id":1}`)},
		`{"id":1}`:                                           {Outcome: json.RawMessage(`{"id":1}`)},
		`done`:                                               {Outcome: json.RawMessage(`"done"`)},
	} {
		g := bare(t, `{entity: order, action: refund, handler: {url: '`+answering(t, 200, "application/json", body)+`'}}`, nil)
		r, err := g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
			TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "order", Action: "refund"},
		})
		if err != nil || r.Status != ids.StatusExecuted || r.Summary != want.Summary || string(r.Outcome) != string(want.Outcome) {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
}
