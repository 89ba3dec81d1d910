package semelhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// world is a server with one guarded route, on an in-memory connection, so that it can
// run in virtual time.
type world struct {
	t      testing.TB
	store  *faultyStore
	engine *semel.Engine
	guard  *semelhttp.Guard
	server *http.Server
	pipes  *pipeListener
	runs   atomic.Int64
	gate   chan struct{} // handlers that wait, wait for this
	gateMu sync.Mutex
	errs   atomic.Int64
}

// newWorld serves the handler at /charges, /charges/{id} and below /tree/, and
// the status resource at /semel/status/.
func newWorld(t testing.TB, local string, opts semelhttp.Options, rt semelhttp.Route, handler func(*world) http.Handler) *world {
	t.Helper()
	w := &world{t: t, store: &faultyStore{mem: memstore.New()}, pipes: newPipeListener(local), gate: make(chan struct{})}
	var err error
	events := &semel.Events{Troubled: func(semel.Troubled) { w.errs.Add(1) }}
	if w.engine, err = semel.New(w.store, &semel.Options{Events: events}); err != nil {
		t.Fatal(err)
	}
	if opts.TempDir == "" {
		opts.TempDir = t.TempDir()
	}
	if w.guard, err = semelhttp.New(w.engine, &opts); err != nil {
		t.Fatal(err)
	}
	guarded, err := w.guard.Handle(rt, handler(w))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/charges", guarded)
	mux.Handle("/charges/{id}", guarded)
	mux.Handle("/tree/", http.StripPrefix("/tree", guarded))
	mux.Handle("/semel/status/{reference}", w.guard.Status())
	// Code around a guard sets its own headers on every answer.
	outer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Request-Id", "outer")
		rw.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
		mux.ServeHTTP(rw, r)
	})
	w.server = &http.Server{Handler: outer, ErrorLog: discardLog}
	return w
}

// start serves until the test ends.
func (w *world) start() (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.server.Serve(w.pipes) })
	return func() {
		w.release()
		_ = w.server.Close()
		wg.Wait()
		if err := w.guard.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
		if err := w.engine.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

// run counts an execution and returns its number.
func (w *world) run() int64 { return w.runs.Add(1) }

// wait blocks a handler until release.
func (w *world) wait() {
	w.gateMu.Lock()
	gate := w.gate
	w.gateMu.Unlock()
	<-gate
}

func (w *world) release() {
	w.gateMu.Lock()
	defer w.gateMu.Unlock()
	close(w.gate)
	w.gate = make(chan struct{})
}

// faultyStore can be switched off. It presents the memory store to the engine as one that
// may fail.
type faultyStore struct {
	mem  *memstore.Store
	down atomic.Bool
}

var errDown = errors.New("the store is switched off")

func (s *faultyStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if s.down.Load() {
		return nil, false, errDown
	}
	return s.mem.Apply(ctx, w)
}

func (s *faultyStore) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.mem.Get(ctx, id)
}

func (s *faultyStore) Now(ctx context.Context) (store.Instant, error) { return s.mem.Now(ctx) }

func (s *faultyStore) Close() error { return s.mem.Close() }

func (s *faultyStore) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	return s.mem.Watch(ctx, id)
}

func (s *faultyStore) Extras() store.Extras { return store.Extras{Watch: s} }

// pipeListener accepts connections in memory that look like TCP.
type pipeListener struct {
	local net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener(local string) *pipeListener {
	return &pipeListener{
		local: &net.TCPAddr{IP: net.ParseIP(local), Port: 443}, conns: make(chan net.Conn), done: make(chan struct{}),
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return l.local }

// dial is the client's end of a new connection.
func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- addressed{server, l.local}
	return client
}

type addressed struct {
	net.Conn
	local net.Addr
}

func (c addressed) LocalAddr() net.Addr { return c.local }
