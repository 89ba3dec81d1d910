package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/memstore"
)

const token = "a-secret-token"

// service is the Execution API on a memory store.
type service struct {
	engine  *semel.Engine
	handler http.Handler
}

func newService(t *testing.T, ops ...semel.Operation) *service {
	t.Helper()
	store := memstore.New()
	observer := api.NewObserver(store)
	e, err := semel.New(store, &semel.Options{Operations: ops, Events: observer.Events(), Node: "node"})
	must(t, err)
	a, err := api.New(api.Options{
		Engine: e, Observer: observer,
		Identify: func(r *http.Request) (api.Caller, error) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				return api.Caller{}, errors.New("the token is not valid")
			}
			return api.Caller{Tenant: "acme", Principal: "shop", Role: api.Operator}, nil
		},
	})
	must(t, err)
	t.Cleanup(func() {
		a.Close()
		if err := errors.Join(e.Close(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return &service{engine: e, handler: a.Admin()}
}

// direct is a transport that calls a handler, without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	answer := make(chan *http.Response, 1)
	go func() {
		rec := httptest.NewRecorder()
		d.ServeHTTP(rec, r)
		answer <- rec.Result()
	}()
	select {
	case resp := <-answer:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// known is a transport to a service that has shown who it is.
func known(f roundTrip) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") == "" {
			return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{peer.Header: {"admin/v1"}}, Body: http.NoBody, Request: r}, nil
		}
		return f(r)
	}
}

func newClient(t *testing.T, transport http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New("http://semel.test", &client.Options{Token: token, Transport: transport})
	must(t, err)
	return c
}

// inBubble runs a test in virtual time, with a service that has the operations, or "op"
// with its defaults.
func inBubble(t *testing.T, body func(t *testing.T, s *service), ops ...semel.Operation) {
	t.Helper()
	if len(ops) == 0 {
		ops = []semel.Operation{{Name: "op"}}
	}
	synctest.Test(t, func(t *testing.T) {
		body(t, newService(t, ops...))
		synctest.Wait()
	})
}

func call(key string) semel.Call {
	return semel.Call{Operation: "op", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("x"))}
}

func id(key string) semel.ID {
	return semel.ID{Tenant: "acme", Principal: "shop", Operation: "op", Key: key}
}

func data(s string) semel.Result { return semel.Result{Data: []byte(s)} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code semel.Code) *semel.Error {
	t.Helper()
	e, ok := errors.AsType[*semel.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	if strings.Contains(err.Error(), token) {
		t.Fatalf("the token is in the error's text: %v", err)
	}
	return e
}

// answers makes a handler for fn of Do.
func answers(res semel.Result, err error) func(context.Context, semel.Execution) (semel.Result, error) {
	return func(context.Context, semel.Execution) (semel.Result, error) { return res, err }
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
