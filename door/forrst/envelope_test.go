package forrst_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestRequestsThatAreNone: each gets its code, its status, and where it is wrong, and
// nothing is executed.
func TestRequestsThatAreNone(t *testing.T) {
	clause.Proves(t, "FOR-OPT.1", "FOR-ID.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	good := call("req_1", `{"amount":1}`, `{"key":"k"}`)
	swap := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %s in %s", old, good)
		}
		return strings.Replace(good, old, with, 1)
	}
	for name, c := range map[string]struct {
		body    string
		status  int
		code    forrst.Code
		pointer string
		anon    bool // the answer has no id
	}{
		"no JSON":              {"{", 400, forrst.ParseError, "", true},
		"two equal members":    {swap(`"id":"req_1"`, `"id":"req_1","id":"req_2"`), 400, forrst.ParseError, "", true},
		"an array":             {"[" + good + "]", 400, forrst.InvalidRequest, "", true},
		"a number":             {"1", 400, forrst.InvalidRequest, "", true},
		"no id":                {swap(`"id":"req_1",`, ""), 400, forrst.InvalidRequest, "/id", true},
		"an id of null":        {swap(`"req_1"`, "null"), 400, forrst.InvalidRequest, "/id", true},
		"an id that is empty":  {swap(`"req_1"`, `""`), 400, forrst.InvalidRequest, "/id", true},
		"an id that is 1":      {swap(`"req_1"`, "1"), 400, forrst.InvalidRequest, "/id", true},
		"a long id":            {swap(`req_1`, strings.Repeat("x", 256)), 400, forrst.InvalidRequest, "/id", true},
		"another case":         {swap(`"call"`, `"Call"`), 400, forrst.InvalidRequest, "/Call", false},
		"another protocol":     {swap(`"name":"forrst"`, `"name":"jsonrpc"`), 400, forrst.InvalidRequest, "/protocol/name", false},
		"a protocol in a text": {swap(`{"name":"forrst","version":"0.1.0"}`, `"forrst/0.1"`), 400, forrst.InvalidRequest, "/protocol", false},
		"a version that is 1":  {swap(`"version":"0.1.0"`, `"version":1`), 400, forrst.InvalidRequest, "/protocol/version", false},
		"another version":      {swap(`"version":"0.1.0"`, `"version":"0.2.0"`), 400, forrst.InvalidProtocolVersion, "/protocol/version", false},
		"no call":              {`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1"}`, 400, forrst.InvalidRequest, "/call", false},
		"no function":          {swap(`"function":"payments.charge",`, ""), 400, forrst.InvalidRequest, "/call/function", false},
		"an unknown function":  {swap(`payments.charge`, "payments.refund"), 404, forrst.FunctionNotFound, "/call/function", false},
		"a version of a name":  {swap(`"version":"1.0.0"`, `"version":"latest"`), 400, forrst.InvalidRequest, "/call/version", false},
		"an unknown version":   {swap(`"version":"1.0.0"`, `"version":"9.0.0"`), 404, forrst.VersionNotFound, "/call/version", false},
		"arguments in a list":  {swap(`{"amount":1}`, `[1]`), 400, forrst.InvalidRequest, "/call/arguments", false},
		"arguments of null":    {swap(`{"amount":1}`, `null`), 400, forrst.InvalidRequest, "/call/arguments", false},
		"a misspelled member":  {swap(`"arguments"`, `"argument"`), 400, forrst.InvalidRequest, "/call/argument", false},
		"a context in a text":  {swap(`"call":`, `"context":"x","call":`), 400, forrst.InvalidRequest, "/context", false},
		"extensions in a map":  {swap(`[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]`, `{"idempotency":{"key":"k"}}`), 400, forrst.InvalidRequest, "/extensions", false},
		"an extension as text": {swap(`{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}`, `"idempotency"`), 400, forrst.InvalidRequest, "/extensions/0", false},
		"an extension by name": {swap(`urn:forrst:ext:idempotency`, `idempotency`), 400, forrst.InvalidRequest, "/extensions/0/urn", false},
		"options in a text":    {swap(`{"key":"k"}`, `"k"`), 400, forrst.InvalidRequest, "/extensions/0/options", false},
		"the extension twice":  {swap(`"extensions":[`, `"extensions":[{"urn":"urn:cline:forrst:ext:idempotency","options":{"key":"k"}},`), 400, forrst.InvalidRequest, "/extensions/1", false},
		"no extension":         {swap(`,"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]`, ""), 400, forrst.InvalidArguments, "/extensions", false},
		"no options":           {swap(`,"options":{"key":"k"}`, ""), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"no key":               {swap(`{"key":"k"}`, "{}"), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"a key of null":        {swap(`"key":"k"`, `"key":null`), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"an empty key":         {swap(`"key":"k"`, `"key":""`), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"a long key":           {swap(`"key":"k"`, `"key":"`+strings.Repeat("k", 256)+`"`), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"a key with a space":   {swap(`"key":"k"`, `"key":"k k"`), 400, forrst.InvalidArguments, "/extensions/0/options/key", false},
		"an unknown option":    {swap(`"key":"k"`, `"key":"k","a/b~c":1`), 400, forrst.InvalidArguments, "/extensions/0/options/a~1b~0c", false},
		"a dry run":            {swap(`"extensions":[`, `"extensions":[{"urn":"urn:forrst:ext:dry-run"},`), 400, forrst.ExtensionNotSupported, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, store: w.store, engine: w.engine, service: w.service}
			got := w.post(c.body)
			got.want(t, c.status, c.code, "")
			pointer := ""
			if s := got.Errors[0].Source; s != nil {
				pointer = s.Pointer
			}
			if pointer != c.pointer || (got.ID == nil) != c.anon {
				t.Errorf("at %q: %s", pointer, got.body)
			}
			if got.ID != nil && (*got.ID != "req_1" || got.header.Get("X-Forrst-Request-Id") != "req_1") {
				t.Errorf("the id is not echoed: %s", got.body)
			}
			if got.data("retry") != nil {
				t.Errorf("sending it again is of no use: %s", got.body)
			}
		})
	}
	t.Cleanup(func() {
		if runs.Load() != 0 {
			t.Errorf("executed %d times", runs.Load())
		}
	})
}

func TestParseErrorsHaveAPosition(t *testing.T) {
	w := serving(t, semel.Operation{}, charge(new(atomic.Int64)))
	for body, at := range map[string]int{`{"id":}`: 6, `x`: 0, ``: 0, `{"id":"a"} x`: 11} {
		s := w.post(body)
		s.want(t, 400, forrst.ParseError, "")
		if p := s.Errors[0].Source.Position; p == nil || *p != at {
			t.Errorf("%q: %s", body, s.body)
		}
	}
}

func TestSeveralErrorsAtOnce(t *testing.T) {
	w := serving(t, semel.Operation{}, charge(new(atomic.Int64)))
	s := w.post(`{"protocol":{"name":"forrst","version":"7"},"id":7,"call":{"function":"","version":"x","arguments":[]},"more":1}`)
	s.want(t, 400, forrst.InvalidRequest, "")
	if len(s.Errors) != 6 {
		t.Errorf("%d errors: %s", len(s.Errors), s.body)
	}
}

func TestHTTP(t *testing.T) {
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, charge(new(atomic.Int64)))}, MaxBody: 300, Node: "n1"})
	good := call("req_1", `{"amount":1}`, `{"key":"k"}`)
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		header string
	}{
		"GET":                 {"", func(r *http.Request) { r.Method = "GET" }, 405, "Allow"},
		"no type":             {good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, ""},
		"the type of a form":  {good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, ""},
		"another charset":     {good, func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=latin1") }, 415, ""},
		"a compressed body":   {good, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, ""},
		"a body that is long": {good + strings.Repeat(" ", 300), func(*http.Request) {}, 413, "Connection"},
	} {
		s := w.post(c.body, c.change)
		if s.status != c.status || s.code() != forrst.InvalidRequest || s.ID != nil || c.header != "" && s.header.Get(c.header) == "" {
			t.Errorf("%s: %d %s", name, s.status, s.body)
		}
		if name == "a compressed body" && !strings.Contains(string(s.body), "without a Content-Encoding") {
			t.Errorf("%s: %s", name, s.body)
		}
	}
	s := w.post(good)
	s.want(t, 200, "", "processed")
	if s.header.Get("X-Forrst-Node") != "n1" || s.header.Get("X-Forrst-Duration-Ms") == "" || s.header.Get("Cache-Control") != "no-store" || !strings.HasSuffix(s.body, `,"meta":{"node":"n1"}}`) {
		t.Errorf("%v %s", s.header, s.body)
	}
}

// TestIDsThatNoHeaderCanHave: they are in the body alone.
func TestIDsThatNoHeaderCanHave(t *testing.T) {
	clause.Proves(t, "FOR-ID.1")
	w := serving(t, semel.Operation{}, charge(new(atomic.Int64)))
	for id, header := range map[string]string{"req 1": "req 1", "Anfrage für 1": "", `a\nb`: ""} {
		s := w.post(strings.Replace(call("ID", "{}", `{"key":"k"}`), "ID", id, 1))
		if s.status != 200 || *s.ID != strings.ReplaceAll(id, `\n`, "\n") || s.header.Get("X-Forrst-Request-Id") != header {
			t.Errorf("%q: %v %s", id, s.header, s.body)
		}
	}
}

// TestCallers: a service without an Identify knows callers as a guard does.
func TestCallers(t *testing.T) {
	var runs atomic.Int64
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs))}})
	plain, err := forrst.New(w.engine, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs))}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(t.Context()) })
	w.service = plain
	by := func(credential string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", credential) }
	}
	const unguessable = `{"key":"0f8fad5b-d9cb-469f-a165-70867728950e"}`
	if s := w.post(call("req_1", "{}", unguessable)); s.status != 401 || s.code() != forrst.Unauthorized || s.header.Get("WWW-Authenticate") == "" {
		t.Fatal(s.status, s.body)
	}
	w.post(call("req_1", "{}", unguessable), by("a")).want(t, 200, "", "processed")
	w.post(call("req_2", "{}", unguessable), by("a")).want(t, 200, "", "cached")
	s := w.post(call("req_3", "{}", unguessable), by("renewed"))
	s.want(t, 409, forrst.Conflict, "")
	if s.Errors[0].Details["reason"] != "other_caller" || strings.Contains(s.body, "ch_abc") || strings.Contains(s.body, "req_1") {
		t.Error(s.body)
	}
	w.post(call("req_4", "{}", `{"key":"order-1"}`), by("a")).want(t, 200, "", "processed")
	w.post(call("req_5", "{}", `{"key":"order-1"}`), by("b")).want(t, 200, "", "processed")
	if runs.Load() != 3 {
		t.Errorf("executed %d times", runs.Load())
	}
}

// TestAStrangerKeepsNoCallFromHappening: what a function refused to a stranger, or to a
// token that has expired, is executed for whomever it accepts.
func TestAStrangerKeepsNoCallFromHappening(t *testing.T) {
	const options = `{"key":"payment:1002:4999:EUR:2026-11-23T12:00:00Z"}`
	for _, code := range []forrst.Code{forrst.Unauthorized, forrst.Forbidden, forrst.RateLimited, forrst.InvalidArguments, forrst.NotFound} {
		t.Run(string(code), func(t *testing.T) {
			refuse := true
			var runs atomic.Int64
			w := serving(t, semel.Operation{}, charge(&runs)) // for its engine
			plain, err := forrst.New(w.engine, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
				if refuse {
					return nil, forrst.Errors{{Code: code, Message: "no"}}
				}
				return charge(&runs)(ctx, x, r)
			})}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = plain.Close(t.Context()) })
			w.service = plain
			by := func(credential string) func(*http.Request) {
				return func(r *http.Request) { r.Header.Set("Authorization", credential) }
			}
			if s := w.post(call("req_1", `{"amount":1}`, options), by("made-up")); s.code() != code {
				t.Fatal(s.status, s.body)
			}
			refuse = false
			w.post(call("req_2", `{"amount":2}`, options), by("owner")).want(t, 200, "", "processed")
			w.post(call("req_3", `{"amount":2}`, options), by("owner")).want(t, 200, "", "cached")
			// Whoever was refused still gets the refusal, and nothing of the owner's call.
			want := code
			if code == forrst.Unauthorized || code == forrst.RateLimited { // no answer about the call
				want = forrst.Conflict
			}
			if s := w.post(call("req_4", `{"amount":1}`, options), by("made-up")); s.code() != want {
				t.Error(s.status, s.body)
			}
			if runs.Load() != 1 {
				t.Errorf("executed %d times", runs.Load())
			}
		})
	}
}
