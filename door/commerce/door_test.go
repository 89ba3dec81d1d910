package commerce

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	rules "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// open makes a service on the memory store. The caller is who the header X-Caller names, with
// the right to act for users if that begins with shop.
func open(t *testing.T, events *semel.Events) *Service {
	t.Helper()
	engine, err := semel.New(memstore.New(), &semel.Options{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.WithoutCancel(t.Context())) })
	s, err := New(engine, Options{Path: "/c/", Identify: func(r *http.Request) (Caller, error) {
		c := Caller{Tenant: "acme", Principal: r.Header.Get("X-Caller")}
		switch {
		case c.Principal == "":
			return c, errors.New("nobody")
		case c.Principal == "unsure":
			return c, &semel.Error{Code: semel.CodeStoreUnavailable}
		case strings.HasPrefix(c.Principal, "shop"):
			c.Rights = []string{"*", RightUsers}
		}
		return c, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(s *Service, who, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-Caller", who)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestCodes(t *testing.T) {
	s := open(t, nil)
	doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
		w := httptest.NewRecorder()
		q := &request{Service: s, w: w, r: httptest.NewRequest("POST", "/c/payments", nil)}
		q.refuse(&semel.Error{Code: code})
		return doortest.ReplyTo(t, w)
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	const intent = `{"intent": {"buy": "shoes"}}`
	var told []semel.Delivered
	s := open(t, &semel.Events{Answered: func(e semel.Delivered) { told = append(told, e) }})
	for _, c := range []struct {
		what, who, method, path, body string
		status                        int
		code                          semel.Code
		header                        []string
	}{
		{"nobody", "", "POST", "/c/mandates", intent, 401, door.CodeUnauthorized, nil},
		{"somebody who can't be checked now", "unsure", "POST", "/c/mandates", intent, 503, semel.CodeStoreUnavailable, nil},
		{"a form of a web page", "ann", "POST", "/c/mandates", intent, 415, door.CodeUnsupportedMedia, []string{"Content-Type", "text/plain"}},
		{"a compressed body", "ann", "POST", "/c/mandates", intent, 415, door.CodeUnsupportedMedia, []string{"Content-Encoding", "gzip"}},
		{"a long body", "ann", "POST", "/c/mandates", intent + strings.Repeat(" ", maxBody), 413, door.CodeTooLarge, nil},
		{"many values", "ann", "POST", "/c/mandates", `{"intent": [` + strings.Repeat("1,", maxValues) + `1]}`, 400, semel.CodeInvalidCall, nil},
		{"a member twice", "ann", "POST", "/c/mandates", `{"user": "ann", "user": "bob", "intent": {}}`, 400, semel.CodeInvalidCall, nil},
		{"a member in another case", "ann", "POST", "/c/mandates", `{"User": "bob", "intent": {}}`, 400, semel.CodeInvalidCall, nil},
		{"no object", "ann", "POST", "/c/mandates", `[]`, 400, semel.CodeInvalidCall, nil},
		{"cart and intent", "ann", "POST", "/c/mandates", `{"intent": {}, "cart": {}}`, 400, semel.CodeInvalidCall, nil},
		{"a cart without a session", "ann", "POST", "/c/mandates", `{"cart": {"currency": "USD", "lines": [{"variant": "a", "quantity": 1, "price": "1"}]}}`, 400, semel.CodeInvalidCall, nil},
		{"a cart without a price", "ann", "POST", "/c/mandates", `{"session": "s", "cart": {"currency": "USD", "lines": [{"variant": "a", "quantity": 1}]}}`, 400, semel.CodeInvalidCall, nil},
		{"another user", "ann", "POST", "/c/mandates", `{"user": "bob", "intent": {}}`, 403, semel.CodeForbidden, nil},
		{"a user that is a scope", "shop", "POST", "/c/mandates", `{"user": "bob␟session=s1", "intent": {}}`, 400, semel.CodeInvalidCall, nil},
		{"an unknown parameter", "shop", "GET", "/c/mandates/x?usr=bob", "", 400, semel.CodeInvalidCall, nil},
		{"two users", "shop", "GET", "/c/mandates/x?user=bob&user=ann", "", 400, semel.CodeInvalidCall, nil},
		{"another method", "ann", "PATCH", "/c/mandates/x", "{}", 405, door.CodeMethodNotAllowed, nil},
		{"another address", "ann", "GET", "/c/mandates/x/y", "", 404, semel.CodeNotFound, nil},
		{"an address of a longer path", "ann", "POST", "/c/changes/user", "{}", 404, semel.CodeNotFound, nil},
		{"no address", "ann", "GET", "/c", "", 404, semel.CodeNotFound, nil},
		{"sessions without keys", "ann", "POST", "/c/sessions", `{"device": "phone"}`, 404, semel.CodeNotFound, nil},
		{"payments without a gateway", "ann", "POST", "/c/payments", `{}`, 404, semel.CodeNotFound, nil},
		{"entities without a database", "shop", "GET", "/c/entities/user/ann", "", 404, semel.CodeNotFound, nil},
	} {
		told = nil
		w := send(s, c.who, c.method, c.path, c.body, c.header...)
		if got := doortest.ReplyTo(t, w); got != (doortest.Reply{Status: c.status, Code: string(c.code), Action: door.ActionOf(c.code, c.status)}) {
			t.Errorf("%s: %+v %s", c.what, got, w.Body)
		}
		if c.status == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: there is no challenge", c.what)
		}
		if c.method == "POST" && (len(told) != 1 || told[0].Code != c.code || told[0].Status != c.status || told[0].Door != Name) {
			t.Errorf("%s: the events have %+v", c.what, told)
		}
	}
}

// TestMandateOfAnIntent: however an intent is written, and however many ask at once, a user has
// one mandate of it; another user has their own.
func TestMandateOfAnIntent(t *testing.T) {
	clause.Proves(t, "MAP-CART.3")
	s := open(t, nil)
	var mu sync.Mutex
	made := map[string]int{}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			body := []string{`{"intent": {"buy": "shoes", "most": 100}}`, `{"intent":{"most":1e2,"buy":"shoes"}}`}[i%2]
			w := send(s, "ann", "POST", "/c/mandates", body)
			mu.Lock()
			defer mu.Unlock()
			made[strings.ReplaceAll(w.Body.String(), "\n", "")]++
		})
	}
	all.Wait()
	if len(made) != 1 {
		t.Errorf("20 requests made %v", made)
	}
	if w := send(s, "shop", "POST", "/c/mandates", `{"user": "bob", "intent": {"buy": "shoes", "most": 100}}`); w.Code != 201 {
		t.Errorf("bob got ann's: %d %s", w.Code, w.Body)
	}
}

// TestAdmit: a call runs under a mandate only for the mandate's user, and for who acts for them.
func TestAdmit(t *testing.T) {
	clause.Proves(t, "MAP-CART.4")
	s := open(t, nil)
	m, err := s.mandates.Intent(t.Context(), rules.Buyer{Tenant: "acme", User: "ann"}, []byte(`{}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	shop := []string{RightUsers}
	for i, c := range []struct {
		caller Caller
		user   string
		id     string
		want   semel.Code
	}{
		{Caller{"acme", "ann", nil}, "", m.ID, ""},
		{Caller{"acme", "ann", nil}, "ann", m.ID, ""},
		{Caller{"acme", "shop", shop}, "ann", m.ID, ""},
		{Caller{"acme", "shop", shop}, "", m.ID, door.CodeMandateExpired},
		{Caller{"acme", "shop", nil}, "ann", m.ID, door.CodeMandateExpired},
		{Caller{"acme", "bob", nil}, "", m.ID, door.CodeMandateExpired},
		{Caller{"other", "ann", nil}, "", m.ID, door.CodeMandateExpired},
		{Caller{"acme", "", nil}, "ann", m.ID, door.CodeMandateExpired},
		{Caller{"acme", "ann", nil}, "", "", door.CodeMandateExpired},
	} {
		if got := s.Admit(t.Context(), nil, c.caller, c.user, c.id); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}
