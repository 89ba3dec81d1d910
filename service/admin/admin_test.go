package admin_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/service/admin"
	"github.com/semelhq/semel/store"
)

func authorize(r *http.Request) (admin.Caller, error) {
	switch r.Header.Get("Authorization") {
	case "Bearer otto":
		return admin.Caller{Principal: "otto", Role: admin.Admin, AllTenants: true}, nil
	case "Bearer blind":
		return admin.Caller{Principal: "blind", Role: admin.Admin}, nil
	case "Bearer nobody":
		return admin.Caller{Principal: "nobody"}, nil
	}
	return admin.Caller{}, errors.New("operators only")
}

// TestHandler: the handler of a program panics, which holds its call, and an operator
// settles it over the mounted handler.
func TestHandler(t *testing.T) {
	s := semelhttptest.New(t, nil)
	charge := s.Guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	h, err := admin.Handler(s.Engine, admin.Options{Authorize: authorize, Prefix: "/admin/semel", Guard: s.Guard})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/semel/", h)
	web := httptest.NewServer(mux)
	defer web.Close()

	func() {
		defer func() { _ = recover() }()
		s.Post(charge, "order-1", `{}`)
	}()
	if w := s.Post(charge, "order-1", `{}`); w.Code != 409 || !strings.Contains(w.Body.String(), `"held"`) {
		t.Fatalf("after a panic: %d, %s", w.Code, w.Body)
	}
	ops, err := client.New(web.URL+"/admin/semel", &client.Options{Token: "otto"})
	if err != nil {
		t.Fatal(err)
	}
	defer ops.Close()
	page, err := ops.Search(t.Context(), store.Query{Held: true})
	if err != nil || len(page.Records) != 1 || !strings.Contains(page.Records[0].HeldReason, "panicked") {
		t.Fatalf("%+v, %v", page, err)
	}
	id := page.Records[0].ID
	if _, err := ops.Settle(t.Context(), id, semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(`{}`)}}, "r"); err == nil {
		t.Error("a bare result was taken for a call of a route")
	}
	answer := semelhttp.Answer{Status: 201, Body: []byte("charged by hand")}
	res, err := answer.Result()
	if err == nil {
		_, err = ops.Settle(t.Context(), id, semel.Settlement{Outcome: semel.DispositionCompleted, Result: res}, "seen at the provider")
	}
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Post(charge, "order-1", `{}`); w.Code != 201 || w.Body.String() != "charged by hand" {
		t.Errorf("the retry gets %d, %s", w.Code, w.Body)
	}
	if err := ops.Purge(t.Context(), id, semel.Removal{Reason: "r"}); err != nil {
		t.Error(err)
	}
}

func TestHandlerRefuses(t *testing.T) {
	s := semelhttptest.New(t, nil)
	if _, err := admin.Handler(s.Engine, admin.Options{}); err == nil || !strings.Contains(err.Error(), "Authorize") {
		t.Errorf("without an authoriser: %v", err)
	}
	for _, prefix := range []string{"admin", "/admin/"} {
		if _, err := admin.Handler(s.Engine, admin.Options{Authorize: authorize, Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q was taken", prefix)
		}
	}
	h, err := admin.Handler(s.Engine, admin.Options{Authorize: authorize, Prefix: "/a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/a/v1/records", "", 401},
		{"GET", "/a/v1/records", "nobody", 401},
		{"GET", "/a/v1/records", "blind", 401},
		{"GET", "/a/v1/records", "otto", 200},
		{"GET", "/a/v1/evidence/export", "nobody", 401},
		{"GET", "/a/v1/evidence/export", "otto", 501}, // there is no log
		{"GET", "/v1/records", "otto", 404},
		{"POST", "/a/v1/operations/charge/executions", "otto", 404},
	} {
		var body io.Reader
		if test.method == "POST" {
			body = strings.NewReader(`{}`)
		}
		r := httptest.NewRequest(test.method, test.path, body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+test.token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.status {
			body, _ := io.ReadAll(w.Body)
			t.Errorf("%s %s by %q: %d, want %d: %s", test.method, test.path, test.token, w.Code, test.status, body)
		}
	}
}
