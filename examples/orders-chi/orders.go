package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/pgstore"
)

// Orders compete for the stock, and the check refuses an order when it is sold out. Processes
// that start at the same time create the tables one after the other: without the lock, one of
// two that both find none fails.
const schema = `
SELECT pg_advisory_xact_lock(hashtextextended('tables of orders', 0));
CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, left_over int NOT NULL CHECK (left_over >= 0));
INSERT INTO stock VALUES ('lamp', 2) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, item text NOT NULL, at timestamptz NOT NULL DEFAULT now());`

type order struct {
	ID   int64  `json:"id"`
	Item string `json:"item"`
}

// routes are the routes of the service. Put middleware for every delivery around the
// guard, and middleware for the one execution inside.
func routes(pool *pgxpool.Pool, guard *semelhttp.Guard) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.RequestID, middleware.Recoverer)
	r.Method(http.MethodPost, "/orders", guard.Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "orders.create"},
		Tx:        pgstore.Transactions(pool),
	}, http.HandlerFunc(create)))
	r.Get("/orders/{id}", show(pool))
	r.Method(http.MethodGet, "/semel/status/{reference}", guard.Status())
	return r
}

// create makes an order in the transaction of its call. It doesn't commit: the guard
// does, together with the answer. If the answer isn't a success, the guard rolls the rows
// back.
func create(w http.ResponseWriter, r *http.Request) {
	tx, ok := pgstore.TxFrom(r.Context())
	if !ok {
		http.Error(w, "the request is not guarded", http.StatusInternalServerError)
		return
	}
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" {
		http.Error(w, "send an item", http.StatusBadRequest)
		return
	}
	tag, err := tx.Exec(r.Context(), "UPDATE stock SET left_over = left_over - 1 WHERE item = $1 AND left_over > 0", o.Item)
	if err != nil {
		http.Error(w, "the database failed", http.StatusInternalServerError)
		return
	}
	if tag.RowsAffected() == 0 {
		http.Error(w, "sold out", http.StatusConflict) // kept: every retry gets the same
		return
	}
	if err := tx.QueryRow(r.Context(), "INSERT INTO orders (item) VALUES ($1) RETURNING id", o.Item).Scan(&o.ID); err != nil {
		http.Error(w, "the database failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/"+strconv.FormatInt(o.ID, 10))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o)
}

// show isn't guarded: reading twice is harmless.
func show(pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(chi.URLParam(r, "id"), 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		o := order{ID: id}
		switch err := pool.QueryRow(r.Context(), "SELECT item FROM orders WHERE id = $1", id).Scan(&o.Item); {
		case errors.Is(err, pgx.ErrNoRows):
			http.NotFound(w, r)
			return
		case err != nil:
			http.Error(w, "the database failed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o)
	}
}
