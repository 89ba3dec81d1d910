package semelhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// The handler runs once, and the retry gets the same answer.
func Example() {
	charges := 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charges)
	})

	// snippet: Guard
	store := memstore.New()
	engine, err := semel.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	go engine.Run(running, 0) // removes expired records, and settles abandoned calls
	guard, err := semelhttp.New(engine, &semelhttp.Options{StatusPath: "/semel/status/"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "payments.charge", Financial: true},
	}, charge))
	mux.Handle("GET /semel/status/{reference}", guard.Status())
	// end snippet

	web := httptest.NewServer(mux)
	server := web.Config
	// snippet: Close
	shutdown := func(ctx context.Context) error {
		err := server.Shutdown(ctx)              // no new requests
		err = errors.Join(err, guard.Close(ctx)) // the outcomes are recorded
		stop()                                   // the sweeps end
		return errors.Join(err, engine.Close(ctx), store.Close())
	}
	// end snippet
	defer func() {
		web.CloseClientConnections()
		if err := shutdown(context.Background()); err != nil {
			log.Fatal(err)
		}
	}()
	for _, body := range []string{`{"amount":1}`, `{"amount":1}`, `{"amount":2}`} {
		r, _ := http.NewRequest(http.MethodPost, web.URL+"/charges", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		resp, err := web.Client().Do(r)
		if err != nil {
			log.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode >= 400 {
			fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
			continue
		}
		fmt.Println(resp.StatusCode, string(text), "replayed:", resp.Header.Get("Idempotency-Replayed") == "true")
	}
	// Output:
	// 201 charge 1 replayed: false
	// 201 charge 1 replayed: true
	// 422 application/problem+json
}

// A guarded handler needs an engine, a guard and a route.
func ExampleGuard_Handler() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	mux := http.NewServeMux()
	charges := 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		fmt.Fprintf(w, "charge %d", charges)
	})
	// snippet: Handler
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	go engine.Run(ctx, 0) // removes expired records, and settles abandoned calls
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /charges", guard.Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "payments.charge", Financial: true},
	}, charge))
	// end snippet
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		r.SetBasicAuth("alice", "secret")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	// Output:
	// charge 1
	// charge 1
}

// A handler that calls a provider keeps that call in the ledger, so that the next attempt
// doesn't repeat it.
func ExampleAttempt() {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		log.Fatal(err)
	}
	mails := 0
	handler := guard.Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "orders.create", Effects: []string{"mail"}},
		Anonymous: semelhttp.AnonymousShare,
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := semelhttp.Attempt(r.Context())
		id, err := semel.Effect(r.Context(), attempt, "mail", func(ctx context.Context, effectKey string) (string, error) {
			mails++
			return fmt.Sprintf("mail %d", mails), nil
		})
		if err != nil || attempt.Number() == 1 {
			http.Error(w, "something else went wrong", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%s in attempt %d", id, attempt.Number())
	}))
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Idempotency-Key", "order-4711")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 500 something else went wrong
	// 200 mail 1 in attempt 2
	// 200 mail 1 in attempt 2
}

// A recoverer inside of the guard that makes an error of a panic says so, and the call is held.
func ExamplePanicked() {
	// snippet: Recoverer
	type fallible func(w http.ResponseWriter, r *http.Request) error
	recovered := func(w http.ResponseWriter, r *http.Request, handle fallible) (err error) {
		defer func() {
			if v := recover(); v != nil {
				semelhttp.Panicked(r.Context())
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		return handle(w, r)
	}
	answering := func(handle fallible) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := recovered(w, r, handle); err != nil {
				http.Error(w, "something went wrong", http.StatusInternalServerError)
			}
		})
	}
	// end snippet
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		log.Fatal(err)
	}
	charge := func(http.ResponseWriter, *http.Request) error { panic("after the charge") }
	handler := guard.Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "payments.charge"}, Anonymous: semelhttp.AnonymousShare,
	}, answering(charge))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Idempotency-Key", "order-4711")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 500
	// 409
}
