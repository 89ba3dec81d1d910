package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
)

// running is a service on free loopback ports.
type running struct {
	*service.Server
	t    *testing.T
	log  *logText
	stop context.CancelFunc
	done chan error
}

// logText is what was logged.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a server with the text of a configuration, and adds listeners on free ports.
func start(t *testing.T, file string) *running {
	t.Helper()
	return startTraced(t, file, nil)
}

// namesOnce fails a test whose log has a line with a name twice. Readers of JSON refuse such a
// line, or take the level of a store for that of the line.
type namesOnce struct {
	slog.Handler
	t     *testing.T
	names []string // of the logger
}

func (h namesOnce) Handle(ctx context.Context, line slog.Record) error {
	names := append([]string{slog.TimeKey, slog.LevelKey, slog.MessageKey}, h.names...)
	for a := range line.Attrs {
		if slices.Contains(names, a.Key) {
			h.t.Errorf("the line %q has %s twice", line.Message, a.Key)
		}
		names = append(names, a.Key)
	}
	return h.Handler.Handle(ctx, line)
}

func (h namesOnce) WithAttrs(attrs []slog.Attr) slog.Handler {
	names := slices.Clone(h.names)
	for _, a := range attrs {
		names = append(names, a.Key)
	}
	return namesOnce{h.Handler.WithAttrs(attrs), h.t, names}
}

// startTraced is start with a provider of traces.
func startTraced(t *testing.T, file string, traces trace.TracerProvider, more ...func(*service.Options)) *running {
	t.Helper()
	load := func() (*config.Config, error) {
		cfg, _, err := config.Load(config.Source{
			Path: file, Env: func(string) (string, bool) { return "", false },
			Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"},
		})
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s := &running{t: t, log: &logText{}, done: make(chan error, 1)}
	log := slog.New(namesOnce{slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}), t, nil})
	opts := service.Options{Config: cfg, Load: load, Log: log, Traces: traces}
	for _, change := range more {
		change(&opts)
	}
	if s.Server, err = service.New(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-s.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		s.done <- nil
	})
	return s
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "semel.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *running) data(path string) string  { return "http://" + s.DataAddr().String() + path }
func (s *running) admin(path string) string { return "http://" + s.AdminAddr().String() + path }

// do sends one request and returns the answer's status, header and text.
func do(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := stage.Direct.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// rootToken is an admin's token, if a test's configuration has one, and asRoot is do with
// it.
const rootToken = "the admin's token"

func asRoot(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	return do(t, method, url, body, append(header, "Authorization", "Bearer "+rootToken)...)
}

func TestServeWithoutAFile(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\n"))
	begin := s.data("/v1/operations/default/executions")
	status, _, text := do(t, "POST", begin, `{"payload":{"amount":12}}`, "Idempotency-Key", "order-7")
	var begun struct{ Execution, Decision string }
	if err := json.Unmarshal([]byte(text), &begun); err != nil || status != 201 || begun.Decision != "execute" {
		t.Fatal(status, text, err)
	}
	if status, _, text = do(t, "POST", begin, `{"payload":{"amount":12}}`, "Idempotency-Key", "order-7"); status != 409 {
		t.Error(status, text)
	}
	if status, _, text = do(t, "POST", s.data("/v1/executions/"+begun.Execution+"/complete"), `{"result":{"receipt":1}}`); status != 200 {
		t.Fatal(status, text)
	}
	status, header, text := do(t, "POST", begin, `{"payload":{"amount":12}}`, "Idempotency-Key", "order-7")
	if status != 200 || header.Get("Idempotency-Replayed") != "true" || !strings.Contains(text, `"result":{"receipt":1}`) {
		t.Error(status, header, text)
	}
	if status, _, text = do(t, "POST", begin, `{"payload":{"amount":13}}`, "Idempotency-Key", "order-7"); status != 422 {
		t.Error(status, text)
	}
	t.Run("operators find the record, callers don't list it", func(t *testing.T) {
		if status, _, text := do(t, "GET", s.admin("/v1/records?q=state:completed"), ""); status != 200 || !strings.Contains(text, `"idempotency_key":"order-7"`) {
			t.Error(status, text)
		}
		if status, _, _ := do(t, "GET", s.data("/v1/records?q=state:completed"), ""); status != 404 && status != 405 {
			t.Error(status)
		}
	})
	t.Run("the process says how it is", func(t *testing.T) {
		if status, _, text := do(t, "GET", s.admin("/healthz"), ""); status != 200 || text != "ok\n" {
			t.Errorf("/healthz: %d %q", status, text)
		}
		if status, _, text := do(t, "GET", s.admin("/livez"), ""); status != 200 || text != "ok\n" {
			t.Error(status, text)
		}
		if status, _, text := do(t, "GET", s.admin("/readyz"), ""); status != 200 || text != "ok\n" {
			t.Error(status, text)
		}
		if status, _, text := do(t, "GET", s.admin("/readyz?verbose"), ""); status != 200 || !strings.Contains(text, "[+] store ok: memory:\n") {
			t.Error(status, text)
		}
	})
	t.Run("the process says which build it is", func(t *testing.T) {
		if _, _, text := do(t, "GET", s.admin("/readyz?verbose"), ""); !strings.Contains(text, "[+] serving ok: semel unknown "+runtime.Version()+"\n") {
			t.Error(text)
		}
		if text := s.log.String(); !strings.Contains(text, "msg=serving") || !strings.Contains(text, "version=unknown") {
			t.Error(text)
		}
	})
	t.Run("/ of the admin listener is the dashboard, and of no other", func(t *testing.T) {
		status, header, text := do(t, "GET", s.admin("/"), "")
		if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(text, "<title>Semel</title>") {
			t.Error(status, header, text)
		}
		if status, _, _ := do(t, "GET", s.data("/"), ""); status != 404 {
			t.Error(status)
		}
	})
	t.Run("problem types resolve", func(t *testing.T) {
		for _, path := range []string{"/semel/problems/conflict", "/problems/conflict"} {
			if status, _, text := do(t, "GET", s.data(path), ""); status != 200 || !strings.Contains(text, "conflict") {
				t.Error(path, status, text)
			}
		}
	})
	t.Run("keys and principals are not logged", func(t *testing.T) {
		if text := s.log.String(); !strings.Contains(text, "decision=conflict") || strings.Contains(text, "order-7") {
			t.Error(text)
		}
	})
}

func TestAdminRefusesOtherSitesAndNames(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\n"))
	if status, _, text := do(t, "POST", s.admin("/v1/reload"), "", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Error("a page of another site may change things:", status, text)
	}
	if status, _, text := do(t, "GET", s.admin("/v1/records"), "", "Host", "evil.example"); status != 421 {
		t.Error("a name that was pointed to loopback is answered:", status, text)
	}
	for _, host := range []string{"localhost:1", "127.0.0.1", "[::1]:80"} {
		if status, _, text := do(t, "GET", s.admin("/livez"), "", "Host", host); status != 200 {
			t.Error(host, status, text)
		}
	}
}

func TestRoles(t *testing.T) {
	tokens := map[string]string{}
	var text strings.Builder
	text.WriteString("store: {url: 'memory:'}\nauth:\n  tokens:\n")
	for _, role := range []string{"viewer", "operator", "admin"} {
		token, sum := auth.NewToken()
		tokens[role] = token
		text.WriteString("    - {name: " + role + ", sha256: " + sum + ", tenant: acme, principal: " + role + ", roles: [" + role + "]}\n")
	}
	s := start(t, write(t, text.String()))
	for _, c := range []struct {
		role, method, path, body string
		status                   int
	}{
		{"", "GET", "/v1/records", "", 401},
		{"nobody", "GET", "/v1/records", "", 401},
		{"viewer", "GET", "/v1/records", "", 200},
		{"viewer", "POST", "/v1/reload", "", 403},
		{"operator", "POST", "/v1/reload", "", 403},
		{"admin", "POST", "/v1/reload", "", 403}, // it is about all tenants
		{"admin", "POST", "/v1/accept-clock", "", 403},
		{"admin", "GET", "/metrics", "", 403},
		{"viewer", "GET", "/metrics", "", 403},
		{"", "GET", "/livez", "", 200},
	} {
		header := []string{"Authorization", "Bearer " + c.role}
		if token, ok := tokens[c.role]; ok {
			header[1] = "Bearer " + token
		} else if c.role == "" {
			header = nil
		}
		if status, _, text := do(t, c.method, s.admin(c.path), c.body, header...); status != c.status {
			t.Errorf("%s %s as %q: %d %s, want %d", c.method, c.path, c.role, status, text, c.status)
		}
	}
}

func TestRoutesAndReload(t *testing.T) {
	hits := make(chan string, 100)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits <- r.URL.Path
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "done "+r.URL.Path)
	}))
	defer upstream.Close()
	config := func(routes string) string {
		return "store: {url: 'memory:'}\noperations:\n  - {name: charge, financial: true, archive: false}\nroutes:\n" + strings.ReplaceAll(routes, "UPSTREAM", upstream.URL)
	}
	file := write(t, config("  - {match: 'POST /charges/{id}', upstream: UPSTREAM, operation: charge}\n"))
	s := start(t, file)
	send := func(path string) (int, string) {
		status, header, _ := do(t, "POST", s.data(path), `{"a":1}`, "Idempotency-Key", "k"+path)
		return status, header.Get("Idempotency-Replayed")
	}
	if status, replayed := send("/charges/1"); status != 201 || replayed != "" {
		t.Fatal(status, replayed)
	}
	if status, replayed := send("/charges/1"); status != 201 || replayed != "true" {
		t.Fatal(status, replayed)
	}
	if status, _ := send("/refunds/1"); status != 404 {
		t.Error("there is no such route yet:", status)
	}
	reload := func() (int, string) {
		status, _, text := do(t, "POST", s.admin("/v1/reload"), "")
		return status, text
	}
	if status, text := reload(); status != 200 || text != "unchanged\n" {
		t.Error(status, text)
	}
	both := config("  - {match: 'POST /charges/{id}', upstream: UPSTREAM, operation: charge}\n  - {match: 'POST /refunds/{id}', upstream: UPSTREAM, operation: charge}\n")
	rewrite := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(both)
	if status, text := reload(); status != 200 || text != "reloaded\n" {
		t.Fatal(status, text)
	}
	if status, replayed := send("/charges/1"); status != 201 || replayed != "true" {
		t.Error("records outlive a reload:", status, replayed)
	}
	if status, _ := send("/refunds/1"); status != 201 {
		t.Error("the new route is not there:", status)
	}
	t.Run("mistakes leave everything as it was, and are all told", func(t *testing.T) {
		rewrite(both + "  - {match: 'POST /x', upstream: nonsense, operation: missing}\n")
		status, text := reload()
		if status != 422 || !strings.Contains(text, "upstream") || !strings.Contains(text, "missing") {
			t.Error(status, text)
		}
		if status, _ := send("/refunds/2"); status != 201 {
			t.Error(status)
		}
	})
	t.Run("another store needs a restart", func(t *testing.T) {
		rewrite(strings.Replace(both, "memory:", "pebble:elsewhere", 1))
		if status, text := reload(); status != 422 || !strings.Contains(text, "changing store.url needs a restart") {
			t.Error(status, text)
		}
	})
	close(hits)
	n := 0
	for range hits {
		n++
	}
	if n != 3 {
		t.Errorf("the upstream was called %d times, want 3", n)
	}
}

// A service that stops says so before it closes connections that wait for their next request.
func TestStopSaysSoBeforeItCloses(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "made") }))
	defer upstream.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\nlimits: {shutdown_delay: 3s}\nroutes:\n  - {match: 'POST /', upstream: '"+upstream.URL+"'}\n"))
	s.stop()
	unready := func() bool {
		status, _, _ := do(t, "GET", s.admin("/readyz"), "")
		return status == http.StatusServiceUnavailable
	}
	for !unready() {
		select {
		case err := <-s.done:
			t.Fatalf("it has ended before it said so: %v", err)
		default:
		}
	}
	if status, _, text := do(t, "POST", s.data("/"), "", "Idempotency-Key", "k"); status != http.StatusOK || text != "made" {
		t.Errorf("while it still takes requests: %d %s", status, text)
	}
}

// A reload takes away what the file no longer has, as a restart would.
func TestAReloadRemovesOperations(t *testing.T) {
	const text = "store: {url: 'memory:'}\noperations:\n  - {name: charge}\n"
	file := write(t, text+"  - {name: refund}\n")
	s := start(t, file)
	begin := func(operation, key string) int {
		status, _, _ := do(t, "POST", s.data("/v1/operations/"+operation+"/executions"), `{"payload":1}`, "Idempotency-Key", key)
		return status
	}
	if status := begin("refund", "a"); status != 201 {
		t.Fatal(status)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, text := do(t, "POST", s.admin("/v1/reload"), ""); status != 200 || text != "reloaded\n" {
		t.Fatal(status, text)
	}
	for _, key := range []string{"a", "b"} {
		if status := begin("refund", key); status != 404 {
			t.Errorf("a call of an operation that was removed gets %d", status)
		}
	}
	if status := begin("charge", "a"); status != 201 {
		t.Error("the other operation is gone:", status)
	}
}

func TestStopFinishesWhatIsInFlight(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "done")
	}))
	defer upstream.Close()
	dir := filepath.Join(t.TempDir(), "data")
	text := "store: {url: 'pebble:" + dir + "'}\nroutes:\n  - {match: 'POST /', upstream: '" + upstream.URL + "'}\n"
	s := start(t, write(t, text))
	got := make(chan string, 1)
	go func() {
		defer close(got)
		status, _, text := do(t, "POST", s.data("/"), "{}", "Idempotency-Key", "k")
		got <- http.StatusText(status) + " " + text
	}()
	<-arrived
	s.stop()
	close(release)
	if text := <-got; text != "OK done" {
		t.Errorf("the request in flight got %q", text)
	}
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	again := start(t, write(t, text))
	if status, header, text := do(t, "POST", again.data("/"), "{}", "Idempotency-Key", "k"); status != 200 || header.Get("Idempotency-Replayed") != "true" || text != "done" {
		t.Errorf("after the restart: %d %q", status, text)
	}
}

func TestStopSettlesWhatDoesNotFinish(t *testing.T) {
	for reloads := range 3 { // since the request came
		t.Run([]string{"no reload", "a reload", "two reloads"}[reloads], func(t *testing.T) { stopSettles(t, reloads) })
	}
}

func stopSettles(t *testing.T, reloads int) {
	arrived := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller goes away
		close(arrived)
		<-r.Context().Done()
	}))
	defer upstream.Close()
	dir := filepath.Join(t.TempDir(), "data")
	text := "store: {url: 'pebble:" + dir + "'}\nlimits: {shutdown_grace: 50ms}\nroutes:\n  - {match: 'POST /', upstream: '" + upstream.URL + "'}\n"
	path := write(t, text)
	s := start(t, path)
	answered := make(chan int, 1)
	go func() {
		defer close(answered)
		status, _, _ := do(t, "POST", s.data("/"), "{}", "Idempotency-Key", "k")
		answered <- status
	}()
	<-arrived
	for n := range reloads {
		if err := os.WriteFile(path, []byte(text+"log: {level: "+[]string{"debug", "warn"}[n]+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if changed, err := s.Reload(); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	if status := <-answered; status < 500 {
		t.Errorf("the caller was told %d", status)
	}
	again := start(t, write(t, text))
	status, _, body := do(t, "POST", again.data("/"), "{}", "Idempotency-Key", "k")
	if status != 409 || !strings.Contains(body, `"held"`) {
		t.Errorf("after the restart: %d %s", status, body)
	}
	page, err := again.Engine().Search(t.Context(), store.Query{Held: true})
	if err != nil || len(page.Records) != 1 {
		t.Errorf("%d held records, %v", len(page.Records), err)
	}
}

func TestNewLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg, _, err := config.Load(config.Source{Data: []byte("listen: {address: '127.0.0.1:0'}\nadmin: {address: '127.0.0.1:0'}\nstore: {url: 'pebble:" + dir + "'}\n"), Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	taken := httptest.NewServer(nil)
	defer taken.Close()
	bad := *cfg
	bad.Admin.Address = taken.Listener.Addr().String()
	if _, err := service.New(t.Context(), service.Options{Config: &bad}); err == nil || !strings.Contains(err.Error(), "admin") {
		t.Fatalf("an address that is taken gives %v", err)
	}
	// The directory's lock is free again.
	s, err := service.New(t.Context(), service.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("at once"))
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
}
