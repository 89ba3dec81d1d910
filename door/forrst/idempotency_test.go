package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
)

func TestBothURNs(t *testing.T) {
	clause.Proves(t, "FOR-OPT.1", "FOR-DUP.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	request := call("req_1", "{}", `{"key":"k"}`)
	vendor := strings.Replace(request, "urn:forrst:", "urn:cline:forrst:", 1)
	for i, c := range []struct{ body, urn, status string }{
		{vendor, "urn:cline:forrst:ext:idempotency", "processed"},
		{request, "urn:forrst:ext:idempotency", "cached"},
		{vendor, "urn:cline:forrst:ext:idempotency", "cached"},
	} {
		s := w.post(c.body)
		s.want(t, 200, "", c.status)
		if s.Extensions[0].URN != c.urn {
			t.Errorf("%d: %s", i, s.body)
		}
	}
}

func TestTTL(t *testing.T) {
	clause.Proves(t, "FOR-OPT.1", "FOR-STORE.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	n := 0
	ask := func(ttl string) *said {
		n++
		return w.post(call("req", "{}", fmt.Sprintf(`{"key":"k%d","ttl":%s}`, n, ttl)))
	}
	for _, ttl := range []string{`{"value":1,"unit":"second"}`, `{"value":90,"unit":"minute"}`, `{"value":720,"unit":"hour"}`, `{"value":30,"unit":"day"}`} {
		ask(ttl).want(t, 200, "", "processed")
	}
	for ttl, pointer := range map[string]string{
		`{"value":0,"unit":"second"}`:                 "/value",
		`{"value":-1,"unit":"day"}`:                   "/value",
		`{"value":1.5,"unit":"day"}`:                  "/value",
		`{"value":"1","unit":"day"}`:                  "/value",
		`{"unit":"day"}`:                              "/value",
		`{"value":31,"unit":"day"}`:                   "/value",
		`{"value":9223372036854775807,"unit":"day"}`:  "/value",
		`{"value":99999999999999999999,"unit":"day"}`: "/value",
		`{"value":1}`:                                 "/unit",
		`{"value":1,"unit":"week"}`:                   "/unit",
		`{"value":1,"unit":"Day"}`:                    "/unit",
		`{"value":1,"unit":"day","more":1}`:           "/more",
		`"1d"`:                                        "",
		`null`:                                        "",
	} {
		s := ask(ttl)
		s.want(t, 400, forrst.InvalidArguments, "")
		if at := s.Errors[0].Source.Pointer; at != "/extensions/0/options/ttl"+pointer {
			t.Errorf("%s: at %s", ttl, at)
		}
	}
	if runs.Load() != 4 {
		t.Errorf("executed %d times", runs.Load())
	}
	financial := serving(t, semel.Operation{Financial: true}, charge(&runs))
	s := financial.post(call("req", "{}", `{"key":"k","ttl":{"value":1,"unit":"hour"}}`))
	s.want(t, 400, forrst.InvalidArguments, "")
	if at := s.Errors[0].Source.Pointer; at != "/extensions/0/options/ttl" {
		t.Errorf("too short for money: %s", s.body)
	}
}

func TestArgumentsAreComparedByMeaning(t *testing.T) {
	clause.Proves(t, "FOR-CONF.1", "FOR-ERR.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	w.post(call("req_1", `{"a":1.0,"b":{"c":"x","d":[1,2]}}`, `{"key":"k"}`)).want(t, 200, "", "processed")
	w.post(call("req_2", ` { "b" : {"d":[1,2],"c":"\u0078"}, "a":1}`, `{"key":"k"}`)).want(t, 200, "", "cached")
	for _, other := range []string{`{"a":1,"b":{"c":"x","d":[2,1]}}`, `{"a":1}`, `{"a":1.0000000000000000001,"b":{"c":"x","d":[1,2]}}`, `{}`} {
		s := w.post(call("req_3", other, `{"key":"k"}`))
		s.want(t, 409, forrst.IdempotencyConflict, "conflict")
		if s.data("retry") != nil || s.header.Get("Retry-After") != "" {
			t.Errorf("a conflict is not retryable: %s", s.body)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("executed %d times", runs.Load())
	}
}

// TestTheHashOfArguments: by default nobody can find out arguments by it.
func TestTheHashOfArguments(t *testing.T) {
	clause.Proves(t, "FOR-CONF.1")
	hash := func(opts forrst.Options, caller string) string {
		opts.Functions = []forrst.Function{charging(semel.Operation{}, charge(new(atomic.Int64)))}
		w := newWorld(t, opts)
		as := func(r *http.Request) { r.Header.Set(callerHeader, caller) }
		w.post(call("req_1", `{"amount":1}`, `{"key":"k"}`), as).want(t, 200, "", "processed")
		s := w.post(call("req_2", `{"amount":2}`, `{"key":"k"}`), as)
		return s.Errors[0].Details["original_arguments_hash"].(string)
	}
	secret := forrst.Options{HashKey: []byte("one secret of all nodes")}
	keyed := hash(secret, "a")
	if !strings.HasPrefix(keyed, "hmac-sha256:") || keyed != hash(secret, "b") || keyed == hash(forrst.Options{}, "a") {
		t.Errorf("%s", keyed)
	}
	// printf %s '{"amount":1}' | sha256sum
	const sum = "c2b11e657e12fd177359627ca89412018e2274d0873cfbfcf1fc50f685582e9e"
	if plain := hash(forrst.Options{PlainHash: true}, "a"); plain != "sha256:"+sum {
		t.Errorf("%s", plain)
	}
}

func TestVersionsAreCallsOfTheirOwn(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-STORE.1")
	answers := func(v string) forrst.Version {
		return forrst.Version{Version: v, Run: func(context.Context, semel.Execution, *forrst.Request) (any, error) { return v, nil }}
	}
	f := forrst.Function{Name: "payments.charge", Versions: []forrst.Version{answers("1.0.0"), answers("3.0.0-beta.1"), answers("2.10.0"), answers("2.9.0")}}
	other := f
	other.Name, other.Operation.Name = "payments.refund", "payments.charge"
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{f, other}})
	request := func(function, version string) string {
		with := strings.Replace(call("req", "{}", `{"key":"k"}`), "payments.charge", function, 1)
		return strings.Replace(with, `"version":"1.0.0",`, version, 1)
	}
	for _, c := range []struct{ function, asked, ran string }{
		{"payments.charge", `"version":"1.0.0",`, "1.0.0"},
		{"payments.charge", `"version":"3.0.0-beta.1",`, "3.0.0-beta.1"},
		{"payments.charge", ``, "2.10.0"},
		{"payments.charge", `"version":"2.10.0",`, "2.10.0"},
		{"payments.refund", ``, "2.10.0"},
	} {
		s := w.post(request(c.function, c.asked))
		s.want(t, 200, "", "processed")
		if string(s.Result) != `"`+c.ran+`"` {
			t.Errorf("%s: %s", c.asked, s.body)
		}
	}
	// A newer version is deployed before a retry that names none.
	f.Versions = append(f.Versions, answers("4.0.0"))
	var err error
	if w.service, err = forrst.New(w.engine, forrst.Options{Functions: []forrst.Function{f}, Identify: identify}); err != nil {
		t.Fatal(err)
	}
	s := w.post(request("payments.charge", ""))
	s.want(t, 200, "", "cached")
	if string(s.Result) != `"2.10.0"` {
		t.Error(s.body)
	}
	beta := forrst.Function{Name: "beta.only", Versions: []forrst.Version{answers("1.0.0-alpha.1")}}
	w = newWorld(t, forrst.Options{Functions: []forrst.Function{beta}})
	w.post(request("beta.only", "")).want(t, 404, forrst.VersionNotFound, "")
}

// TestExtensions: one that changes what a call does is part of the call, and one that
// doesn't is not.
func TestExtensions(t *testing.T) {
	var runs atomic.Int64
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs))}, Extensions: []string{"urn:cline:forrst:ext:dry-run"}})
	with := func(id, key, extension string) string {
		return strings.Replace(call(id, "{}", `{"key":"`+key+`"}`), `"extensions":[`, `"extensions":[`+extension+`,`, 1)
	}
	w.post(with("req_1", "k", `{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"1"}}`)).want(t, 200, "", "processed")
	w.post(with("req_2", "k", `{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"2"}}`)).want(t, 200, "", "cached")
	w.post(with("req_3", "k", `{"urn":"urn:acme:forrst:ext:audit"}`)).want(t, 200, "", "cached")
	w.post(with("req_4", "d", `{"urn":"urn:forrst:ext:dry-run","options":{}}`)).want(t, 200, "", "processed")
	w.post(with("req_5", "d", `{"urn":"urn:cline:forrst:ext:dry-run"}`)).want(t, 200, "", "cached")
	w.post(call("req_6", "{}", `{"key":"d"}`)).want(t, 409, forrst.IdempotencyConflict, "conflict")
	s := w.post(with("req_7", "e", `{"urn":"urn:forrst:ext:simulation"}`))
	s.want(t, 400, forrst.ExtensionNotSupported, "")
	if text, _ := json.Marshal(s.Errors[0].Details); string(text) != `{"supported":["urn:forrst:ext:idempotency","urn:forrst:ext:retry","urn:forrst:ext:dry-run"],"unsupported":["urn:forrst:ext:simulation"]}` {
		t.Errorf("%s", text)
	}
}

func TestFunctionsWithoutAKey(t *testing.T) {
	clause.Proves(t, "FOR-USE.1")
	var runs atomic.Int64
	read := charging(semel.Operation{Class: semel.ReadOnly}, charge(&runs))
	optional := charging(semel.Operation{}, charge(&runs))
	read.Name, optional.Name, optional.Key = "payments.show", "payments.try", "optional"
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{read, optional}})
	for _, name := range []string{"payments.show", "payments.try"} {
		keyed := strings.Replace(call("req", "{}", `{"key":"k"}`), "payments.charge", name, 1)
		bare := keyed[:strings.Index(keyed, `,"extensions"`)] + "}"
		for range 2 {
			w.post(bare).want(t, 200, "", "")
		}
		s := w.post(keyed)
		if name == "payments.try" {
			s.want(t, 200, "", "processed")
			continue
		}
		s.want(t, 400, forrst.ExtensionNotApplicable, "")
		if s.Errors[0].Source.Pointer != "/extensions/0" || s.Errors[0].Details["function"] != name {
			t.Error(s.body)
		}
	}
	if runs.Load() != 5 {
		t.Errorf("executed %d times", runs.Load())
	}
}

// TestKeysOfReadsCanBeIgnored: where the service says so, a client may send a key with every
// call, whatever is wrong with it.
func TestKeysOfReadsCanBeIgnored(t *testing.T) {
	clause.Proves(t, "FOR-USE.1")
	var runs atomic.Int64
	read, write := charging(semel.Operation{Class: semel.ReadOnly}, charge(&runs)), charging(semel.Operation{}, charge(&runs))
	read.Name = "payments.show"
	w := newWorld(t, forrst.Options{IgnoreReadKeys: true, Functions: []forrst.Function{read, write}})
	for _, options := range []string{`{"key":"k"}`, `{"key":"k"}`, `{}`} {
		s := w.post(strings.Replace(call("req", `{"n":1}`, options), "payments.charge", "payments.show", 1))
		s.want(t, 200, "", "")
		if len(s.Extensions) > 0 {
			t.Error(s.body)
		}
	}
	if runs.Load() != 3 {
		t.Errorf("executed %d times", runs.Load())
	}
	w.post(strings.Replace(call("req", "{}", `{"key":"k"}`), "payments.charge", "urn:cline:forrst:fn:ping", 1)).want(t, 200, "", "")
	w.post(call("req", `{"n":2}`, `{"key":"k"}`)).want(t, 200, "", "processed") // its key is nobody else's
	w.post(call("req", `{"n":2}`, `{}`)).want(t, 400, forrst.InvalidArguments, "")
	explained := w.service.Explain([]byte(strings.Replace(call("req", "{}", `{"key":"k"}`), "payments.charge", "payments.show", 1)))
	if explained.Status != 0 || explained.Key != "" {
		t.Errorf("%+v", explained)
	}
}

// TestTheHeaderOfTheDraftIsNoKey: the extension alone counts, whatever else a request has, as the
// page says.
func TestTheHeaderOfTheDraftIsNoKey(t *testing.T) {
	clause.Proves(t, "FOR-HDR.1")
	page, err := os.ReadFile("../../docs/forrst.md")
	if err != nil || !strings.Contains(string(page), "| a request with an `Idempotency-Key` header | only the extension counts.") {
		t.Errorf("the page doesn't say what the header counts for: %v", err)
	}
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	header := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Idempotency-Key", key) }
	}
	w.post(call("req_1", "{}", `{"key":"k1"}`), header(`"h1"`)).want(t, 200, "", "processed")
	w.post(call("req_2", "{}", `{"key":"k1"}`), header(`"h2"`)).want(t, 200, "", "cached")
	w.post(call("req_3", "{}", `{"key":"k2"}`), header(`"h1"`)).want(t, 200, "", "processed")
	bare := call("req_4", "{}", `{"key":"k1"}`)
	w.post(bare[:strings.Index(bare, `,"extensions"`)]+"}", header(`"k1"`)).want(t, 400, forrst.InvalidArguments, "")
	if runs.Load() != 2 {
		t.Errorf("executed %d times", runs.Load())
	}
}

// TestAnotherTTLChangesNothing: a duplicate gets the outcome, which ends when the first request
// said.
func TestAnotherTTLChangesNothing(t *testing.T) {
	clause.Proves(t, "FOR-DUP.2")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		w := serving(t, semel.Operation{}, charge(&runs))
		ask := func(id, ttl string) *said {
			return w.post(call(id, "{}", `{"key":"k"`+ttl+`}`))
		}
		first := ask("req_1", `,"ttl":{"value":2,"unit":"hour"}`)
		first.want(t, 200, "", "processed")
		for i, ttl := range []string{`,"ttl":{"value":1,"unit":"second"}`, `,"ttl":{"value":30,"unit":"day"}`, ""} {
			s := ask(fmt.Sprint("req_", i+2), ttl)
			s.want(t, 200, "", "cached")
			if got, want := s.data("idempotency")["expires_at"], first.data("idempotency")["expires_at"]; got != want || want == nil {
				t.Errorf("with%s it expires at %v, and not at %v", ttl, got, want)
			}
		}
		w.store.Advance(2*time.Hour - time.Second)
		ask("req_5", "").want(t, 200, "", "cached")
		w.store.Advance(time.Second)
		ask("req_6", "").want(t, 200, "", "processed")
		if runs.Load() != 2 {
			t.Errorf("executed %d times", runs.Load())
		}
	})
}

// TestAStorm: of many deliveries at once one executes, and none gets anything else than
// its result or the word that it is being made.
func TestAStorm(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1", "FOR-PROC.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	var all sync.WaitGroup
	for key := range 20 {
		for delivery := range 5 {
			all.Go(func() {
				id := fmt.Sprintf("req_%d_%d", key, delivery)
				s := w.post(call(id, fmt.Sprintf(`{"amount":%d}`, key), fmt.Sprintf(`{"key":"k%d"}`, key)))
				switch status := s.data("idempotency")["status"]; {
				case s.status == 409 && s.code() == forrst.IdempotencyProcessing && s.data("retry")["allowed"] == true:
				case s.status == 200 && status == "processed" && s.data("idempotency")["original_request_id"] == id:
				case s.status == 200 && status == "cached":
				default:
					t.Errorf("%d %s", s.status, s.body)
				}
			})
		}
	}
	all.Wait()
	if runs.Load() != 20 {
		t.Errorf("executed %d times", runs.Load())
	}
}

// TestKeysThatFollowAPatternAreTheirCallers: the patterns of the specification are accepted as
// written, and two verified callers who use one don't meet.
func TestKeysThatFollowAPatternAreTheirCallers(t *testing.T) {
	clause.Proves(t, "FOR-KEY.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	for _, key := range []string{"order_cust42_1702500000", "charge_order123_attempt1", "reserve_sku123_order456", "550e8400-e29b-41d4-a716-446655440000"} {
		for _, caller := range []string{"one", "another"} {
			by := func(r *http.Request) { r.Header.Set(callerHeader, caller) }
			before := runs.Load()
			w.post(call("req_1", "{}", `{"key":"`+key+`"}`), by).want(t, 200, "", "processed")
			w.post(call("req_2", "{}", `{"key":"`+key+`"}`), by).want(t, 200, "", "cached")
			if n := runs.Load() - before; n != 1 {
				t.Errorf("%s by %s ran %d times", key, caller, n)
			}
		}
	}
}
