package semelproxy_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// seen is a request as the upstream got it.
type seen struct {
	*http.Request
	body string
}

// upstream is a plain server that knows nothing of keys.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seen
}

// requests are those that have arrived, in their order.
func (u *upstream) requests() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seen(nil), u.seen...)
}

func (u *upstream) count() int { return len(u.requests()) }

// newUpstream starts an upstream. The handler gets requests whose body was read.
func newUpstream(t testing.TB, setup func(*httptest.Server), h func(w http.ResponseWriter, r *http.Request, n int)) *upstream {
	t.Helper()
	u := new(upstream)
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.seen = append(u.seen, seen{r, string(body)})
		n := len(u.seen)
		u.mu.Unlock()
		h(w, r, n)
	}))
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	if setup == nil {
		setup = (*httptest.Server).Start
	}
	setup(u.Server)
	t.Cleanup(u.Close)
	return u
}

// world is a proxy as a server on loopback.
type world struct {
	t      testing.TB
	engine *semel.Engine
	guard  *semelhttp.Guard
	proxy  *semelproxy.Proxy
	store  *countingStore
	server *http.Server
	url    string
	addr   string
	client *http.Client

	lost chan semel.LeaseLost // the first of them

	mu      sync.Mutex
	errs    []error
	reports []report
}

// countingStore counts what the store is asked, and can be switched off. It hides
// what the memory store can do beyond the least.
type countingStore struct {
	mem   *memstore.Store
	mu    sync.Mutex
	calls int
	down  bool
}

var errDown = errors.New("the store is switched off")

func (s *countingStore) switchTo(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *countingStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.mu.Lock()
	s.calls++
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, false, errDown
	}
	return s.mem.Apply(ctx, w)
}

func (s *countingStore) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	return s.mem.Get(ctx, id)
}

func (s *countingStore) Now(ctx context.Context) (store.Instant, error) { return s.mem.Now(ctx) }

func (s *countingStore) Close() error { return s.mem.Close() }

func (s *countingStore) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	return s.mem.Watch(ctx, id)
}

func (s *countingStore) Extras() store.Extras { return store.Extras{Watch: s} }

func (s *countingStore) applied() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// report is what the mode shadow says of one request.
type report struct {
	Verdict    semelproxy.Verdict
	Call, Code string
	Status     int64
}

func reportOf(ev semel.Delivered) (r report) {
	r.Status = int64(ev.Status)
	for _, a := range ev.Attrs {
		switch a.Key {
		case "verdict":
			r.Verdict = semelproxy.Verdict(a.Value.String())
		case "call":
			r.Call = a.Value.String()
		case "would_code":
			r.Code = a.Value.String()
		}
	}
	return r
}

// reported are the reports since it was last called.
func (w *world) reported() []report {
	w.mu.Lock()
	defer w.mu.Unlock()
	reports := w.reports
	w.reports = nil
	return reports
}

// newWorld serves a proxy to target. Options may be changed before it is made.
func newWorld(t testing.TB, target string, change func(*world, *semelproxy.Options)) *world {
	t.Helper()
	w := &world{t: t, lost: make(chan semel.LeaseLost, 1), store: &countingStore{mem: memstore.New()}}
	var err error
	events := &semel.Events{
		LeaseLost: func(ev semel.LeaseLost) {
			select {
			case w.lost <- ev:
			default:
			}
		},
		Answered: func(ev semel.Delivered) {
			if ev.Door == semelproxy.Name {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.reports = append(w.reports, reportOf(ev))
			}
		},
		Troubled: func(ev semel.Troubled) {
			if ev.Door == semelproxy.Name {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.errs = append(w.errs, ev.Err)
			}
		},
	}
	if w.engine, err = semel.New(w.store, &semel.Options{StoreTimeout: time.Second, Events: events}); err != nil {
		t.Fatal(err)
	}
	if w.guard, err = semelhttp.New(w.engine, &semelhttp.Options{StatusPath: "/semel/status/", TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	opts := semelproxy.Options{
		Upstream: u, Route: semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}},
	}
	w.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
	if change != nil {
		change(w, &opts)
	}
	if w.proxy, err = semelproxy.New(w.guard, opts); err != nil {
		t.Fatal(err)
	}
	status := w.guard.Status()
	w.server.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/semel/status/") {
			status.ServeHTTP(rw, r)
			return
		}
		w.proxy.ServeHTTP(rw, r)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.url = "http://" + w.addr
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	if w.server.TLSConfig != nil {
		w.url = "https://" + w.addr
	}
	strict := semelproxy.Strict(w.server, l)
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.server.Serve(strict) })
	t.Cleanup(func() {
		_ = w.server.Close()
		wg.Wait()
		w.client.CloseIdleConnections()
		w.proxy.Close()
		if err := w.guard.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := w.engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// reply is an answer that was read whole.
type reply struct {
	*http.Response
	body string
	err  error // why the body is not whole
}

// send makes a request. Headers are "Name: value".
func (w *world) send(method, path, key, body string, headers ...string) reply {
	w.t.Helper()
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, src)
	if err != nil {
		w.t.Fatal(err)
	}
	r.GetBody = nil
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp, string(text), err}
}

// want checks the status and that the body has a text.
func (a reply) want(t testing.TB, status int, text string) {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(a.body, text) {
		t.Fatalf("got %d %q, want %d with %q", a.StatusCode, a.body, status, text)
	}
}
