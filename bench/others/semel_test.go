package others

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/pebblestore"
)

// route is a charge, as docs/handlers.md has it.
var route = semelhttp.Route{Operation: semel.Operation{Name: "charge", Financial: true}}

// newEngine opens the embedded store.
func newEngine() *semel.Engine {
	store, err := pebblestore.Open(os.Getenv("STORE"), nil)
	must(err)
	engine, err := semel.New(store, nil)
	must(err)
	return engine
}

// serveMiddleware guards the shop's handlers.
func serveMiddleware() {
	guard, err := semelhttp.New(newEngine(), nil)
	must(err)
	mux := http.NewServeMux()
	for path, name := range map[string]string{"POST /charges": "charge", "POST /refunds": "refund"} {
		r := route
		r.Operation.Name = name
		h, err := guard.Handle(r, http.HandlerFunc(shop))
		must(err)
		mux.Handle(path, h)
	}
	must(http.Serve(listen(), mux))
}

// beside serves a handler on an address of its own.
func beside(h http.Handler) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() { must(http.Serve(l, h)) }()
	return "http://" + l.Addr().String()
}

// serveProxy has the shop behind the proxy.
func serveProxy() {
	upstream, err := url.Parse(beside(http.HandlerFunc(shop)))
	must(err)
	guard, err := semelhttp.New(newEngine(), nil)
	must(err)
	proxy, err := semelproxy.New(guard, semelproxy.Options{Upstream: upstream, Route: route})
	must(err)
	must(http.Serve(listen(), proxy))
}

// serveExecution has a shop that asks the execution API, as programs in other languages do.
func serveExecution() {
	engine := newEngine()
	must(engine.Register(semel.Operation{Name: "charge", MaxResult: 1 << 20}))
	server, err := api.New(api.Options{Engine: engine, Identify: func(*http.Request) (api.Caller, error) {
		return api.Caller{Tenant: "acme", Principal: "shop"}, nil
	}})
	must(err)
	c, err := client.New(beside(server.Data()), nil)
	must(err)
	must(http.Serve(listen(), asking{c}))
}

// asking is a shop that does the work if the execution API says so.
type asking struct{ client *client.Client }

// sold is the outcome of a call.
type sold struct {
	Status int
	Text   string
}

// ServeHTTP names a call by what the shop tells requests apart by: key, credential and address.
func (s asking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	keys := r.Header["Idempotency-Key"]
	if err != nil || len(keys) != 1 || strings.Contains(strings.Trim(keys[0], `"`), `"`) || strings.Count(keys[0], `"`)%2 != 0 {
		http.Error(w, `{"error":"one key, please"}`, http.StatusBadRequest)
		return
	}
	name := strings.Trim(keys[0], `"`) + " " + r.URL.RequestURI() + " " + r.Header.Get("Authorization")
	call := semel.Call{Operation: "charge", Key: fmt.Sprintf("%x", sha256.Sum256([]byte(name))), Fingerprint: semel.FingerprintOf(semel.SchemeRaw, body)}
	ctx := context.WithoutCancel(r.Context()) // who hangs up leaves no call without an end
	got, _, err := semel.Do(ctx, s.client, call, func(context.Context, semel.Execution) (sold, error) {
		status, text := sale(string(body))
		return sold{status, text}, nil
	})
	refused, _ := errors.AsType[*semel.Error](err)
	switch {
	case err == nil:
		w.WriteHeader(got.Status)
		_, _ = io.WriteString(w, got.Text)
	case refused != nil && refused.Code == semel.CodeConflict:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case refused != nil && (refused.Code == semel.CodeInFlight || refused.Code == semel.CodeHeld):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
