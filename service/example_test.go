package service_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel/service"
)

// A service in your own program: an upstream is guarded, and a retry gets the first answer.
func Example() {
	charges := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		fmt.Fprintf(w, "charge %d", charges)
	}))
	defer upstream.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := service.New(ctx, service.Options{
		YAML: []byte(`
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
store: {url: "memory:"}
operations:
  - {name: charge, window: 24h}
routes:
  - {match: /charges, operation: charge, upstream: ` + upstream.URL + `, key: required}
`),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	for range 2 {
		req, _ := http.NewRequest(http.MethodPost, "http://"+s.DataAddr().String()+"/charges", strings.NewReader(`{"amount": 100}`))
		req.Header.Set("Idempotency-Key", "order-1")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Println(string(body))
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// charge 1
	// charge 1
	// <nil>
}
