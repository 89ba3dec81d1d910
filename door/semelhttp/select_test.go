package semelhttp_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// selecting is a guarded handler that answers with its number and the body that it got.
type selecting struct {
	t       *testing.T
	store   *memstore.Store
	handler http.Handler
	runs    int
	answer  func(w http.ResponseWriter, n int)
}

func newSelecting(t *testing.T, rt semelhttp.Route) *selecting {
	t.Helper()
	s := &selecting{t: t, store: memstore.New()}
	engine, err := semel.New(s.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, &semelhttp.Options{TempDir: t.TempDir(), Identity: func(*http.Request) (string, string, error) { return "acme", "shop", nil }})
	if err != nil {
		t.Fatal(err)
	}
	rt.Operation.Name = "pay"
	s.handler, err = guard.Handle(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs++
		body, _ := io.ReadAll(r.Body)
		if s.answer != nil {
			s.answer(w, s.runs)
			return
		}
		fmt.Fprintf(w, "%d:%d", s.runs, len(body))
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends a request to /pay and what follows; further headers are "Name: value". It
// returns the status and the body.
func (s *selecting) send(target, contentType, body string, headers ...string) (int, string) {
	s.t.Helper()
	r := httptest.NewRequest("POST", "/pay"+target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	inJSON = "application/json"
	inForm = "application/x-www-form-urlencoded"
)

func TestKeyFrom(t *testing.T) {
	from := []string{"header:Idempotency-Key", "json:/params/key", "form:key", "query:key"}
	large := `{"params":{"key":"k"},"pad":"` + strings.Repeat("x", 200<<10) + `"}`
	for _, test := range []struct {
		name                      string
		target, contentType, body string
		headers                   []string
		status                    int
		says                      string
	}{
		{"a header", "", "", "x", []string{`Idempotency-Key: "k"`}, 200, ""},
		{"a member of JSON", "", inJSON, `{"params":{"key":"k"}}`, nil, 200, ""},
		{"a number in JSON", "", inJSON, `{"params":{"key":12345678901234567890}}`, nil, 200, ""},
		{"a member of a large body", "", inJSON, large, nil, 200, ""},
		{"a field of a form", "", inForm, "a=b&key=k", nil, 200, ""},
		{"a parameter of the query", "?key=k", "text/plain", "x", nil, 200, ""},
		{"the same key twice", "?key=k", inJSON, `{"params":{"key":"k"}}`, []string{"Idempotency-Key: k"}, 200, ""},
		{"a body of another type beside a key in a header", "", "text/plain", "x", []string{"Idempotency-Key: k"}, 200, ""},
		{"two keys that differ", "?key=other", inJSON, `{"params":{"key":"k"}}`, nil, 400, "The keys in json:/params/key and query:key differ."},
		{"no key", "", inJSON, `{"params":{}}`, nil, 400, "none in header:Idempotency-Key, json:/params/key, form:key, query:key"},
		{"an empty key", "", inJSON, `{"params":{"key":""}}`, nil, 400, "none in"},
		{"a key that is an object", "", inJSON, `{"params":{"key":{}}}`, nil, 400, "is not a string or a number"},
		{"a key with a line break", "", inJSON, `{"params":{"key":"a\nb"}}`, nil, 400, "outside printable ASCII"},
		{"a key with other letters", "", inJSON, `{"params":{"key":"订单-1"}}`, nil, 400, "outside printable ASCII"},
		{"a key that is too long", "", inJSON, `{"params":{"key":"` + strings.Repeat("k", 300) + `"}}`, nil, 400, "longer than this service accepts"},
		{"a field twice", "", inForm, "key=k&key=k", nil, 400, "is given more than once"},
		{"a name twice", "", inJSON, `{"params":{"key":"k"},"params":{"key":"l"}}`, []string{"Idempotency-Key: k"}, 400, "has a name twice"},
		{"a compressed body", "", inJSON, gzipAt(1, `{"params":{"key":"k"}}`), []string{"Content-Encoding: gzip"}, 200, ""},
		{"a large compressed body", "", inJSON, gzipAt(1, strings.ReplaceAll(large, "xxxx", "abxx")), []string{"Content-Encoding: gzip"}, 200, ""},
		{"a body that can't be decoded", "", inJSON, gzipAt(1, `{"params":{"key":"k"}}`) + "x", []string{"Content-Encoding: gzip"}, 400, "can't be looked for"},
		{"a body of another type", "", "text/plain", "x", nil, 400, "can't be looked for"},
	} {
		for _, rule := range []semelhttp.KeyRule{semelhttp.KeyRequired, semelhttp.KeyOptional} {
			t.Run(fmt.Sprintf("%s, %s", test.name, rule), func(t *testing.T) {
				s := newSelecting(t, semelhttp.Route{KeyFrom: from, Key: rule})
				status, answer := s.send(test.target, test.contentType, test.body, test.headers...)
				if rule == semelhttp.KeyOptional && strings.HasPrefix(test.says, "none in") {
					// Without a key it passes, with all of its body.
					if status != 200 || answer != fmt.Sprintf("1:%d", len(test.body)) {
						t.Errorf("%d %s", status, answer)
					}
					return
				}
				if status != test.status || !strings.Contains(answer, test.says) {
					t.Errorf("%d %s", status, answer)
				}
				if test.status != 200 {
					if s.runs != 0 {
						t.Error("a refused request ran")
					}
					return
				}
				if answer != fmt.Sprintf("1:%d", len(test.body)) {
					t.Errorf("the handler got another body: %s", answer)
				}
				if _, again := s.send(test.target, test.contentType, test.body, test.headers...); again != answer || s.runs != 1 {
					t.Errorf("the second delivery ran: %s", again)
				}
			})
		}
	}
	t.Run("a template takes a key with other letters", func(t *testing.T) { // as docs/service.md and the setting say
		s := newSelecting(t, semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "{number}", Values: map[string]string{"number": "json:/params/key"}}})
		for range 2 {
			if status, answer := s.send("", inJSON, `{"params":{"key":"订单-1"}}`); status != 200 || s.runs != 1 {
				t.Errorf("%d %s", status, answer)
			}
		}
		if page, err := s.store.Search(t.Context(), store.Query{Key: "%E8%AE%A2%E5%8D%95-1", Limit: 2}); err != nil || len(page.Records) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	})
	t.Run("a key is one wherever it is", func(t *testing.T) {
		s := newSelecting(t, semelhttp.Route{KeyFrom: from, Body: semelhttp.BodyRaw, FingerprintHeaders: nil})
		s.send("", inJSON, `{"params":{"key":"k"}}`)
		if status, _ := s.send("", inJSON, `{"params":{"key":"k"},"more":1}`, "Idempotency-Key: k"); status != 422 || s.runs != 1 {
			t.Errorf("another payload under the key got %d", status)
		}
	})
}

func TestKeyTemplateOfARoute(t *testing.T) {
	clause.Proves(t, "MAP-KEY.2", "MAP-CART.1")
	rt := semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{
		Template: "cart_mandate:{cart_hash}", Scope: "session", ScopeField: "session_id",
		Values: map[string]string{"session_id": "header:X-Session", "cart_hash": "cart:/cart"},
	}}
	s := newSelecting(t, rt)
	const ab = `{"cart":[{"variant":"A","quantity":1,"price":"9.99"},{"variant":"B","quantity":2,"price":"5"}]}`
	const ba = `{"cart":[{"variant":"B","quantity":2,"price":"5"},{"variant":"A","quantity":1,"price":"9.99"}]}`
	_, first := s.send("", inJSON, ab, "X-Session: s1", "Idempotency-Key: ignored")
	if _, again := s.send("", inJSON, ba, "X-Session: s1"); again != first || s.runs != 1 {
		t.Errorf("the same cart ran again: %s and %s", first, again)
	}
	if _, other := s.send("", inJSON, ab, "X-Session: s2"); other == first || s.runs != 2 {
		t.Error("two sessions with one cart have one mandate")
	}
	if status, text := s.send("", inJSON, ab); status != 400 || !strings.Contains(text, "which lacks some of") {
		t.Errorf("without a session: %d %s", status, text)
	}
	if status, text := s.send("", inJSON, `{"cart":{}}`, "X-Session: s1"); status != 400 || !strings.Contains(text, "is not a list of items") {
		t.Errorf("without a list: %d %s", status, text)
	}
}

// TestAPayloadDiffersNoMoreThanItsKey: what makes no difference to a key that is made from
// content makes no conflict; what the key leaves out does, unless the route ignores it.
func TestAPayloadDiffersNoMoreThanItsKey(t *testing.T) {
	clause.Proves(t, "MAP-CART.5")
	values := map[string]string{"cart_hash": "cart:/order/lines", "amount": "json:/order/amount", "address_hash": "hash:/order/address", "user_id": "query:user"}
	const template = "order:{user_id}:{cart_hash}:{amount}:{address_hash}"
	first := `{"order":{"lines":[{"variant":"A","quantity":1,"price":"5"},{"variant":"B","quantity":2,"price":9.0}],"amount":"2999","address":{"a":1,"b":2},"note":"n"},"requested_at":1}`
	for name, c := range map[string]struct {
		rt     semelhttp.Route
		second string // in place of the first
		status int
	}{
		"the lines in another order":            {second: `{"order":{"lines":[{"price":"9","variant":"B","quantity":2},{"variant":"A","quantity":1,"price":5}],"amount":"2999","address":{"a":1,"b":2},"note":"n"},"requested_at":1}`, status: 200},
		"an amount as a number":                 {second: strings.Replace(first, `"2999"`, "2999.0", 1), status: 200},
		"an amount in another form":             {second: strings.Replace(first, `"2999"`, "2.999e3", 1), status: 200},
		"what was digested, spelled otherwise":  {second: strings.Replace(first, `{"a":1,"b":2}`, `{"b": 2.0, "a": 1}`, 1), status: 200},
		"what the key leaves out":               {second: strings.Replace(first, `"n"}`, `"m"}`, 1), status: 422},
		"what the key leaves out, as a number":  {second: strings.Replace(first, `"note":"n"`, `"note":1`, 1), status: 422},
		"what is ephemeral":                     {second: strings.Replace(first, `"requested_at":1`, `"requested_at":2`, 1), status: 422},
		"what is ephemeral, and ignored":        {rt: semelhttp.Route{FingerprintIgnore: []string{"/requested_at"}}, second: strings.Replace(first, `"requested_at":1`, `"requested_at":2`, 1), status: 200},
		"what the key leaves out, of a part":    {rt: semelhttp.Route{FingerprintOnly: []string{"/order"}}, second: strings.Replace(first, `"n"}`, `"m"}`, 1), status: 422},
		"the lines in another order, of a part": {rt: semelhttp.Route{FingerprintOnly: []string{"/order"}}, second: `{"order":{"lines":[{"price":"9","variant":"B","quantity":2},{"variant":"A","quantity":1,"price":5}],"amount":2999,"address":{"a":1,"b":2},"note":"n"},"requested_at":2}`, status: 200},
		"another spelling, compared by bytes":   {rt: semelhttp.Route{Body: semelhttp.BodyRaw}, second: strings.Replace(first, `"2999"`, "2999", 1), status: 422},
	} {
		c.rt.KeyTemplate = semelhttp.KeyTemplate{Template: template, Values: values}
		s := newSelecting(t, c.rt)
		if status, text := s.send("?user=u", inJSON, first); status != 200 {
			t.Fatal(name, status, text)
		}
		if status, text := s.send("?user=u", inJSON, c.second); status != c.status || s.runs != 1 {
			t.Errorf("%s: %d %s after %d runs, want %d", name, status, text, s.runs, c.status)
		}
	}

	// The amount isn't in this key, so another one is another payload.
	s := newSelecting(t, semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "order:{cart_hash}:{user_id}", Values: map[string]string{"cart_hash": values["cart_hash"], "user_id": values["user_id"]}}})
	if status, text := s.send("?user=u", inJSON, first); status != 200 {
		t.Fatal(status, text)
	}
	if status, _ := s.send("?user=u", inJSON, strings.Replace(first, "2999", "29.99", 1)); status != 422 || s.runs != 1 {
		t.Errorf("another amount: %d after %d runs", status, s.runs)
	}
	if status, text := s.send("?user=u", inJSON, strings.Replace(first, `"price":"5"`, `"price":5`, 1)); status != 200 || s.runs != 1 {
		t.Errorf("a price of the cart as a number: %d %s after %d runs", status, text, s.runs)
	}
}

func TestFingerprintOfParts(t *testing.T) {
	s := newSelecting(t, semelhttp.Route{FingerprintIgnore: []string{"/context", "/meta/trace"}})
	const key = "Idempotency-Key: k"
	s.send("", inJSON, `{"a":1,"context":{"n":1},"meta":{"trace":"x","b":2}}`, key)
	if status, _ := s.send("", inJSON, `{"meta":{"b":2},"a":1.0}`, key); status != 200 || s.runs != 1 {
		t.Errorf("what is ignored made a conflict: %d", status)
	}
	if status, _ := s.send("", inJSON, `{"meta":{"b":3},"a":1}`, key); status != 422 {
		t.Errorf("what isn't ignored made none: %d", status)
	}
	// Another set on the same store, as after a change of the configuration.
	print := func(rt semelhttp.Route, body string) semel.Fingerprint {
		engine, err := semel.New(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		guard, err := semelhttp.New(engine, nil)
		if err != nil {
			t.Fatal(err)
		}
		rt.Operation.Name = "pay"
		i, err := guard.Inspect(rt)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/pay", nil)
		r.Header.Set("Content-Type", inJSON)
		return i.Fingerprint(r, []byte(body))
	}
	seen := map[semel.Fingerprint]string{}
	for name, rt := range map[string]semelhttp.Route{
		"whole": {}, "only a": {FingerprintOnly: []string{"/a"}}, "ignore a": {FingerprintIgnore: []string{"/a"}},
		"only a and b": {FingerprintOnly: []string{"/a", "/b"}}, "ignore b": {FingerprintIgnore: []string{"/b"}},
	} {
		fp := print(rt, `{"a":1}`)
		if other, twice := seen[fp]; twice {
			t.Errorf("%s and %s make one fingerprint", name, other)
		}
		seen[fp] = name
	}
}

func TestAttributesOfARoute(t *testing.T) {
	s := newSelecting(t, semelhttp.Route{KeyFrom: []string{"json:/id"}, Attributes: map[string]string{
		"order": "json:/order_id", "customer": "header:X-Customer", "receipt": "answer:/receipt/id", "long": "json:/long", "gone": "query:gone",
	}})
	s.answer = func(w http.ResponseWriter, n int) {
		w.Header().Set("Content-Type", "application/problem+json")
		if n == 1 {
			w.WriteHeader(500)
			fmt.Fprint(w, `{"receipt":{"id":"failed"}}`)
			return
		}
		w.WriteHeader(402 + 20)
		fmt.Fprintf(w, `{"receipt":{"id":9007199254740993}}`)
	}
	body := `{"id":"k","order_id":9911,"long":"` + strings.Repeat("x", 2000) + `"}`
	s.send("", inJSON, body, "X-Customer: c7")
	if status, _ := s.send("", inJSON, body, "X-Customer: other"); status != 422 {
		t.Fatal(status)
	}
	page, err := s.store.Search(t.Context(), store.Query{Attributes: store.Attributes{"order": "9911"}})
	want := store.Attributes{"order": "9911", "customer": "c7", "receipt": "9007199254740993"}
	if err != nil || len(page.Records) != 1 || !maps.Equal(page.Records[0].Attributes, want) {
		t.Errorf("%+v, %v; want %v", page.Records, err, want)
	}
}

func TestSelectorsOfARouteAreChecked(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		rt   semelhttp.Route
		want string
	}{
		{"a key from an answer", semelhttp.Route{KeyFrom: []string{"answer:/id"}}, "KeyFrom: "},
		{"a pointer without a slash", semelhttp.Route{KeyFrom: []string{"json:id"}}, "write /id"},
		{"a field without a value", semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "a:{order_id}"}}, "there is none for {order_id}"},
		{"a value without a field", semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "a:{order_id}", Values: map[string]string{"order_id": "json:/o", "x": "json:/x"}}}, "there is no field {x}"},
		{"a time of now", semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "a:{order_id}:{timestamp}"}}, "a time is another one in every delivery"},
		{"a time of now by its place", semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "a:{order_id}:{version}", Values: map[string]string{"order_id": "json:/o", "version": "header:Date"}}}, "header:Date: a time is another one"},
		{"a scope without a field", semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "a:{order_id}", Scope: "session", Values: map[string]string{"order_id": "json:/o"}}}, "need each other"},
		{"parts of a body compared raw", semelhttp.Route{Body: semelhttp.BodyRaw, FingerprintOnly: []string{"/a"}}, "Body is raw"},
		{"an attribute of the engine", semelhttp.Route{Attributes: map[string]string{"command_id": "json:/a"}}, `"command_id" can't be the name of one`},
		{"an attribute that a search can't name", semelhttp.Route{Attributes: map[string]string{"a=b": "json:/a"}}, `"a=b" can't be the name of one`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.rt.Operation.Name = "pay"
			if _, err := guard.Handle(test.rt, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	// What was stored with the intent may enter a key, whatever its name in the request.
	rt := semelhttp.Route{Operation: semel.Operation{Name: "stored"}, KeyTemplate: semelhttp.KeyTemplate{Template: "pay:{order_id}:{intent.created_at}", Values: map[string]string{"order_id": "json:/order_id", "intent.created_at": "json:/intent/created_at"}}}
	if _, err := guard.Handle(rt, http.NotFoundHandler()); err != nil {
		t.Error(err)
	}
}

// TestPayloadIsKeptWhereTheOperationSaysSo: also that of a body which is partly in a file, and
// never beyond the bound.
func TestPayloadIsKeptWhereTheOperationSaysSo(t *testing.T) {
	large := `{"pad":"` + strings.Repeat("x", 100<<10) + `"}`
	for _, keep := range []bool{true, false} {
		rt := semelhttp.Route{}
		rt.Operation.KeepPayload, rt.Operation.MaxResult = keep, 200<<10
		s := newSelecting(t, rt)
		for key, body := range map[string]string{"small": `{"a":1}`, "large": large, "too-large": large + strings.Repeat(" ", 100<<10), "empty": ""} {
			s.send("", inJSON, body, "Idempotency-Key: "+key)
			page, err := s.store.Search(t.Context(), store.Query{Key: key})
			if err != nil || len(page.Records) != 1 {
				t.Fatal(page, err)
			}
			want := body
			if !keep || key == "too-large" {
				want = ""
			}
			if got := page.Records[0].Payload; string(got) != want {
				t.Errorf("of %s %d bytes are kept, want %d", key, len(got), len(want))
			}
		}
	}
}
