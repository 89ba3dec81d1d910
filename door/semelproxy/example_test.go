package semelproxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/store/memstore"
)

func Example() {
	// A service that knows nothing of keys.
	charges := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		fmt.Fprintf(w, "charge %d", charges)
	}))
	defer service.Close()

	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		panic(err)
	}
	upstream, err := url.Parse(service.URL)
	if err != nil {
		panic(err)
	}
	proxy, err := semelproxy.New(guard, semelproxy.Options{
		Upstream: upstream,
		Route:    semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}},
	})
	if err != nil {
		panic(err)
	}
	defer proxy.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: proxy}
	done := make(chan error, 1)
	listener = semelproxy.Strict(server, listener)
	go func() { done <- server.Serve(listener) }()

	for range 2 {
		r, err := http.NewRequest("POST", "http://"+listener.Addr().String()+"/charges", strings.NewReader(`{"amount":1250}`))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Idempotency-Key", "order-4711")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s, replayed %t\n", body, resp.Header.Get("Idempotency-Replayed") == "true")
	}
	if err := server.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	<-done
	// Output:
	// charge 1, replayed false
	// charge 1, replayed true
}
