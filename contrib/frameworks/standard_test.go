package frameworks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"
	"github.com/gorilla/mux"

	"github.com/semelhq/semel/internal/rig/frameworktest"
)

// What is net/http in another coat: the guard is its middleware.

// create is the guarded handler of net/http.
func create(s *frameworktest.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if err := s.Create(r.Context(), r.FormValue("do"), key); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(made(key))
	}
}

type order struct {
	Key  string `json:"key"`
	Note string `json:"note"`
}

// made is the answer to an order, long enough for every compressor.
func made(key string) order { return order{key, strings.Repeat("thank you ", 40)} }

func withNetHTTP(s *frameworktest.Service) string {
	guard, route, create := s.Guard, s.Route, create(s)
	// snippet: NetHTTP
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Handler(route, create))
	// end snippet
	return s.Serve(mux)
}

func withChi(s *frameworktest.Service) string {
	guard, route, create := s.Guard, s.Route, create(s)
	// snippet: Chi
	r := chi.NewRouter()
	r.Use(middleware.Compress(5), middleware.Recoverer) // for each delivery
	r.With(guard.Middleware(route)).Post("/orders", create)
	// end snippet
	return s.Serve(r)
}

func withGorilla(s *frameworktest.Service) string {
	guard, route, create := s.Guard, s.Route, create(s)
	// snippet: Gorilla
	r := mux.NewRouter()
	r.Handle("/orders", guard.Handler(route, create)).Methods(http.MethodPost)
	handler := handlers.CompressHandler(handlers.RecoveryHandler()(r)) // for each delivery
	// end snippet
	return s.Serve(handler)
}

func withHuma(s *frameworktest.Service) string {
	guard, route := s.Guard, s.Route
	create := func(ctx context.Context, in *struct {
		Key string `header:"Idempotency-Key"`
		Do  string `query:"do"`
	}) (*struct{ Body order }, error) {
		switch err := s.Create(ctx, in.Do, in.Key); {
		case errors.Is(err, frameworktest.ErrRefused):
			return nil, huma.Error422UnprocessableEntity(err.Error())
		case err != nil:
			return nil, err
		}
		return &struct{ Body order }{made(in.Key)}, nil
	}
	// snippet: Huma
	r := chi.NewRouter()
	r.Use(middleware.Compress(5), middleware.Recoverer) // for each delivery
	api := humachi.New(r.With(guard.Middleware(route)), huma.DefaultConfig("Orders", "1.0.0"))
	huma.Post(api, "/orders", create, func(o *huma.Operation) { o.DefaultStatus = http.StatusCreated })
	// end snippet
	return s.Serve(r)
}
