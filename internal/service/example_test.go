package service_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// A service inside another program: it guards an upstream, until its context is done.
func Example() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("charging")
		fmt.Fprint(w, "receipt 17")
	}))
	defer upstream.Close()
	cfg, _, err := config.Load(config.Source{
		Path: "semel.yaml",
		Data: []byte("store: {url: 'memory:'}\n" +
			"operations: [{name: charge}]\n" +
			"routes: [{match: POST /charges, operation: charge, upstream: '" + upstream.URL + "', anonymous: share}]\n"),
		Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := service.New(ctx, service.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.DataAddr().String()+"/charges", nil)
		if err != nil {
			fmt.Println(err)
			break
		}
		r.Header.Set("Idempotency-Key", "order-1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			break
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s, replayed: %q %v\n", text, resp.Header.Get("Idempotency-Replayed"), err)
	}
	stop() // what is in flight finishes, and the store is closed
	fmt.Println(<-ended)
	// Output:
	// charging
	// receipt 17, replayed: "" <nil>
	// receipt 17, replayed: "true" <nil>
	// <nil>
}
