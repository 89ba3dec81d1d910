package pgstore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestTableOfForrst: the view idempotency_cache has the columns that Forrst recommends, what they
// say is true, and no other call is in it.
func TestTableOfForrst(t *testing.T) {
	clause.Proves(t, "FOR-SCHEMA.1")
	st, database := open(t, Options{})
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	noError(t, err)
	began, end := make(chan struct{}), make(chan struct{})
	run := func(_ context.Context, _ semel.Execution, r *forrst.Request) (any, error) {
		switch r.Key {
		case "fails":
			return nil, &forrst.Error{Code: forrst.NotFound, Message: "There is no such card"}
		case "runs":
			close(began)
			<-end
		}
		return map[string]string{"charge_id": "ch_1"}, nil
	}
	service, err := forrst.New(engine, forrst.Options{
		PlainHash: true,
		Identify: func(*http.Request) (semelhttp.Caller, error) {
			return semelhttp.Caller{Tenant: "acme", Principal: "shop@home"}, nil
		},
		Functions: []forrst.Function{{Name: "payments@eu.charge", Operation: semel.Operation{Name: "charge"}, Versions: []forrst.Version{{Version: "1.0.0-beta.1", Run: run}, {Version: "2.0.0", Run: run}}}},
	})
	noError(t, err)
	call := func(key, version string) {
		body := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"payments@eu.charge",` + version + `"arguments":{"amount":1}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"` + key + `"}}]}`
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/forrst", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		service.ServeHTTP(httptest.NewRecorder(), r)
	}
	call("pays", `"version":"1.0.0-beta.1",`)
	call("fails", "")
	go call("runs", `"version":"2.0.0",`)
	<-began
	defer close(end)
	for _, c := range []semel.Call{{Operation: "pay", Key: "another"}, {Operation: "pay", Key: "a scope", Scope: "cart@1"}, {Operation: "pay", Key: "an attribute", Attributes: map[string]string{"arguments_hash": "x"}}} {
		_, err := engine.Do(t.Context(), c, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
		noError(t, err)
	}

	type row struct {
		hash, function, version, arguments, status string
		result                                     *string
		created                                    time.Time
		expires                                    *time.Time
	}
	rows, err := pgtest.Shared(t).Conn(t, database).Query(t.Context(), `SELECT key_hash, function, version, arguments_hash, result::text, status, created_at, expires_at FROM semel.idempotency_cache`)
	noError(t, err)
	defer rows.Close()
	found := map[string]row{}
	for rows.Next() {
		var r row
		noError(t, rows.Scan(&r.hash, &r.function, &r.version, &r.arguments, &r.result, &r.status, &r.created, &r.expires))
		found[r.version] = r
	}
	noError(t, rows.Err())
	// printf %s '{"amount":1}' | sha256sum
	const hash = "sha256:c2b11e657e12fd177359627ca89412018e2274d0873cfbfcf1fc50f685582e9e"
	for version, want := range map[string]struct{ status, result string }{
		"1.0.0-beta.1": {"completed", `{"charge_id": "ch_1"}`},
		"":             {"failed", `{"errors": [{"code": "NOT_FOUND", "message": "There is no such card"}], "status": 404}`},
		"2.0.0":        {"processing", "NULL"},
	} {
		got, ok := found[version]
		if !ok || got.function != "payments@eu.charge" || got.arguments != hash || len(got.hash) != 64 || got.created.IsZero() || got.status != want.status || orNULL(got.result) != want.result ||
			(got.expires == nil) != (want.status == "processing") || got.expires != nil && got.expires.Sub(got.created).Round(time.Hour) != 24*time.Hour {
			t.Errorf("version %q is %+v with the result %s, want %+v", version, got, orNULL(got.result), want)
		}
	}
	page, err := os.ReadFile("../../docs/forrst.md")
	noError(t, err)
	shown := regexp.MustCompile("(?s)<!-- sql -->\n```sql\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no statement")
	}
	pgtest.Shared(t).Exec(t, database, string(shown[1]))
	if len(found) != 3 {
		t.Errorf("the view has %+v", found)
	}
}
