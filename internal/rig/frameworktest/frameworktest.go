// Package frameworktest tries a guard in a web framework: it gives the framework's handlers
// an effect, which is a row in PostgreSQL, and says what their clients got and what the
// database has.
package frameworktest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pgstore"
)

// What a request asks of its handler, in the parameter "do" of its query.
const (
	Make   = "make"   // make a row, and answer
	Fail   = "fail"   // make a row, and fail with [ErrRefused]
	Panic  = "panic"  // make a row, and panic, but only the first time
	HangUp = "hangup" // make a row, and answer when the client has gone
)

// ErrRefused is to be answered by 422, as the framework answers errors.
var ErrRefused = errors.New("amount too small")

// Database is a database with a table of orders and a store.
type Database struct {
	Pool  *pgxpool.Pool
	store *pgstore.Store
}

// New makes a database, which ends with the test. The package's TestMain is [pgtest.Main].
func New(t testing.TB) *Database {
	t.Helper()
	server := pgtest.Shared(t)
	pool, err := pgxpool.New(t.Context(), server.URL(server.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st, err := pgstore.New(t.Context(), pool, &pgstore.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := pool.Exec(t.Context(), "CREATE TABLE orders (key text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return &Database{pool, st}
}

// Service is a guard with one route, for orders.
type Service struct {
	Guard *semelhttp.Guard
	Route semelhttp.Route
	// Native: the framework's own server is tried, which doesn't notice that a client hangs up.
	Native bool

	t    testing.TB
	db   *Database
	mu   sync.Mutex
	told []semel.Troubled
	runs map[string]int
	made map[string]chan struct{} // closed when the handler has made its row
	gone map[string]chan struct{} // closed when the server has noticed that the client has gone
}

// Service makes a service for one framework, which ends with the test. With tx its handlers
// run in transactions.
func (d *Database) Service(t testing.TB, tx bool) *Service {
	t.Helper()
	s := &Service{t: t, db: d, runs: map[string]int{}, made: map[string]chan struct{}{}, gone: map[string]chan struct{}{}}
	engine, err := semel.New(d.store, &semel.Options{Events: &semel.Events{
		Unswept: func(semel.Unswept) {},
		Troubled: func(e semel.Troubled) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.told = append(s.told, e)
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	identify := func(*http.Request) (tenant, principal string, err error) { return "", "tester", nil }
	// snippet: Guard
	guard, err := semelhttp.New(engine, &semelhttp.Options{Identity: identify})
	route := semelhttp.Route{Operation: semel.Operation{Name: "orders.create"}}
	// end snippet
	if err != nil {
		t.Fatal(err)
	}
	if s.Guard, s.Route = guard, route; tx {
		s.Route.Tx = pgstore.Transactions(d.Pool)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Guard.Close(ctx), engine.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Meet has the first transaction rolled back because of others, as databases do when
// transactions meet.
func (s *Service) Meet() { s.Route.Tx = &meeting{Transactor: s.Route.Tx} }

type meeting struct {
	door.Transactor
	runs atomic.Int64
}

func (m *meeting) DoTx(ctx context.Context, e *semel.Engine, call semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
	return m.Transactor.DoTx(ctx, e, call, func(ctx context.Context) (semel.Result, error) {
		res, err := fn(ctx)
		if m.runs.Add(1) == 1 {
			err = &pgconn.PgError{Code: "40001"}
		}
		return res, err
	})
}

// Serve serves a framework with net/http, and returns its address.
func (s *Service) Serve(h http.Handler) string {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		stop := context.AfterFunc(r.Context(), func() { s.hungUp(key) })
		defer stop()
		h.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	s.t.Cleanup(server.Close)
	return server.URL
}

// hungUp says that the client of a key has gone.
func (s *Service) hungUp(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.gone[key]; gone != nil {
		close(gone)
		delete(s.gone, key)
	}
}

// Create is the work of the guarded handler: it makes a row in the transaction of the
// context, or else on its own. The key is that of the request.
func (s *Service) Create(ctx context.Context, do, key string) error {
	const insert = "INSERT INTO orders VALUES ($1)"
	var err error
	if tx, ok := pgstore.TxFrom(ctx); ok {
		_, err = tx.Exec(ctx, insert, key)
	} else {
		_, err = s.db.Pool.Exec(ctx, insert, key)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.runs[key]++
	first, gone := s.runs[key] == 1, s.gone[key]
	if made := s.made[key]; made != nil {
		close(made)
		delete(s.made, key)
	}
	s.mu.Unlock()
	switch {
	case do == Fail:
		return ErrRefused
	case do == Panic && first:
		panic("boom")
	case do == HangUp && gone != nil:
		select {
		case <-gone:
			return ctx.Err() // nothing: it isn't stopped by that
		case <-s.t.Context().Done():
			return context.Cause(s.t.Context())
		}
	}
	return nil
}

// Runs says how often the handler has run for a key.
func (s *Service) Runs(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[key]
}

// Told returns the events for Troubled since the last time.
func (s *Service) Told() []semel.Troubled {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

// Rows counts the rows of a key.
func (s *Service) Rows(key string) (n int) {
	s.t.Helper()
	if err := s.db.Pool.QueryRow(s.t.Context(), "SELECT count(*) FROM orders WHERE key = $1", key).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// Answer is what a client got. Status 0: its connection broke.
type Answer struct {
	Status   int
	Body     string
	Replayed bool
	Packed   bool // it came compressed by gzip
}

// Post sends an order to /orders. Another that is in flight is waited for.
func (s *Service) Post(ctx context.Context, url, do, key string) (a Answer) {
	for range 1000 {
		if a = s.post(ctx, url, do, key); a.Status != http.StatusConflict || !strings.Contains(a.Body, `"in_flight"`) {
			return a
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	s.t.Errorf("%s stays in flight", key)
	return a
}

func (s *Service) post(ctx context.Context, url, do, key string) Answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders?do="+do, strings.NewReader(`{"amount":1}`))
	if err != nil {
		s.t.Error(err)
		return Answer{}
	}
	r.GetBody = nil // or the client would send it again by itself
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Prefer", "wait=5")
	if accepts, ok := ctx.Value(acceptsKey{}).(string); ok {
		r.Header.Set("Accept-Encoding", accepts)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return Answer{}
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Replayed: resp.Header.Get("Idempotency-Replayed") == "true"}
	text, err := io.ReadAll(resp.Body)
	a.Packed = resp.Uncompressed
	if resp.Header.Get("Content-Encoding") == "gzip" && len(text) > 0 {
		a.Packed = true
		var unpacked *gzip.Reader
		if unpacked, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
			text, err = io.ReadAll(unpacked)
		}
	}
	if err != nil {
		return Answer{}
	}
	a.Body = strings.TrimSpace(string(text))
	return a
}

type acceptsKey struct{}

// Accepts is a context that gives the requests of [Service.Post] an Accept-Encoding.
func Accepts(ctx context.Context, coding string) context.Context {
	return context.WithValue(ctx, acceptsKey{}, coding)
}
