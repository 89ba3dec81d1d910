package check_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// moment is the group that is being judged, and what happens in it for the first time. A planted
// server that knows it can wait for what the check does next, where a clock would only hope for it.
type moment struct {
	mu    sync.Mutex
	group string
	seen  map[string]int
}

func (m *moment) began(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.group, m.seen = group, map[string]int{}
}

// first reports whether something happens for the first time in a group, which is the current one.
func (m *moment) first(group, what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.group != group {
		return false
	}
	m.seen[what]++
	return m.seen[what] == 1
}

// is is the current group.
func (m *moment) is() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group
}

// app is the service without keys: each request that it takes is an effect, which it may count
// late.
type app struct {
	charges, effects atomic.Int64
	late             time.Duration
}

// ServeHTTP executes what the body asks for.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request broke off
	}
	if r.URL.Path != "/charges" || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	mode := string(body)
	if strings.Contains(mode, "rejected") {
		http.Error(w, "the card was declined", http.StatusUnprocessableEntity)
		return
	}
	n := a.charges.Add(1)
	time.AfterFunc(a.late, func() { a.effects.Add(1) })
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/charges/%d", n))
	switch {
	case strings.Contains(mode, "failing"):
		w.WriteHeader(http.StatusInternalServerError)
	case strings.Contains(mode, "slow"):
		<-time.After(200 * time.Millisecond) // the bank is slow
	}
	fmt.Fprintf(w, `{"charge":%d}`, n)
	switch {
	case strings.Contains(mode, "big"):
		_, _ = io.WriteString(w, strings.Repeat("x", 200_000))
	case strings.Contains(mode, "streamed"):
		for i := range 5 {
			fmt.Fprintf(w, "\npart %d", i)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

const requests = `POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "currency": "EUR"}

### slow
POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "mode": "slow"}

### rejected
POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "mode": "rejected"}

### failing
POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "mode": "failing"}

### big
POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "mode": "big"}

### streamed
POST /charges HTTP/1.1
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "mode": "streamed"}
`

// kept is a recorded answer.
type kept struct {
	status int
	header http.Header
	body   string
}

// entry is what a peer knows of a key.
type entry struct {
	print [32]byte
	done  chan struct{} // closed when there is an answer
	asked chan struct{} // gets a value when a duplicate comes before
	kept  *kept
}

// peer guards an app by keys. It is correct, but for one planted bug.
type peer struct {
	app     http.Handler
	bug     string
	waits   bool // duplicates wait for the answer
	strict  bool // keys are structured strings, and required
	now     moment
	stormed string        // the first key of a storm
	second  chan struct{} // closed when another delivery of it looks
	limit   int64         // one in so many requests is one too many
	seen    atomic.Int64
	mu      sync.Mutex
	entries map[string]*entry
	order   []string // of the entries
}

// crash forgets what isn't durable: which calls are running.
func (p *peer) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bug == "crash" {
		p.entries = map[string]*entry{}
	}
}

// identity is what names a call. It isn't ok if the key is malformed.
func (p *peer) identity(r *http.Request) (id string, ok bool) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return "", !p.strict
	}
	key := lines[0]
	unquoted := strings.TrimSuffix(strings.TrimPrefix(key, `"`), `"`)
	quoted := len(key) == len(unquoted)+2
	if len(lines) > 1 && p.bug != "keys" || !quoted && (p.strict || strings.Contains(key, `"`)) || len(key) > 1000 {
		return "", false
	}
	if len(lines) > 1 {
		return "", true // the bug: as if there were none
	}
	if p.bug != "callers" {
		unquoted += " " + r.Header.Get("Authorization")
	}
	if p.bug != "scope" {
		unquoted += " " + r.URL.RequestURI()
	}
	return unquoted, true
}

// ServeHTTP decides.
func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.limit > 0 && p.seen.Add(1)%p.limit == 0 {
		w.Header().Set("Retry-After", "0")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	id, ok := p.identity(r)
	switch {
	case !ok:
		http.Error(w, "malformed key", http.StatusBadRequest)
		return
	case id == "":
		p.app.ServeHTTP(w, r)
		return
	}
	print := sha256.Sum256(body)
	e, mine := p.claim(id, print)
	switch {
	case mine:
		p.execute(w, r, id, e, strings.Contains(string(body), "slow"))
		return
	case e.print != print && p.bug != "conflict":
		http.Error(w, "another payload", http.StatusUnprocessableEntity)
		return
	}
	p.replay(w, e)
}

// claim finds the entry of a key, or makes one.
func (p *peer) claim(id string, print [32]byte) (e *entry, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e = p.entries[id]; e != nil && p.bug == "expiry" && p.now.is() == "expiry" {
		e = nil
	}
	if e == nil && p.bug == "storm" { // it looks, and then claims
		switch {
		case p.now.first("storm", ""):
			p.stormed, p.second = id, make(chan struct{})
			p.mu.Unlock()
			<-p.second
			p.mu.Lock()
		case p.stormed == id:
			p.stormed = ""
			close(p.second)
		}
	}
	if e != nil {
		return e, false
	}
	e = &entry{print: print, done: make(chan struct{}), asked: make(chan struct{}, 1)}
	p.entries[id] = e
	if p.order = append(p.order, id); p.bug == "evicts" && len(p.order) > 50 {
		delete(p.entries, p.order[0])
		p.order = p.order[1:]
	}
	return e, true
}

// execute runs the app, and keeps its answer.
func (p *peer) execute(w http.ResponseWriter, r *http.Request, id string, e *entry, slow bool) {
	rec := httptest.NewRecorder()
	p.app.ServeHTTP(rec, r)
	if slow && p.now.is() == "in-flight" {
		<-e.asked
	}
	if slow && p.bug == "gone" && p.now.first("gone", id) {
		<-r.Context().Done() // no other delivery of a slow one leaves
	}
	k := &kept{rec.Code, rec.Header(), rec.Body.String()}
	forget := p.bug == "failures" && k.status >= 500 || p.bug == "answers" && len(k.body) > 100_000 ||
		p.bug == "gone" && r.Context().Err() != nil
	p.mu.Lock()
	if forget && p.entries[id] == e {
		delete(p.entries, id)
	}
	e.kept = k
	p.mu.Unlock()
	close(e.done)
	p.write(w, k)
}

// replay answers a duplicate.
func (p *peer) replay(w http.ResponseWriter, e *entry) {
	p.mu.Lock()
	k := e.kept
	p.mu.Unlock()
	select {
	case e.asked <- struct{}{}:
	default: // it knows already
	}
	switch {
	case k == nil && p.bug == "in-flight":
		w.WriteHeader(http.StatusOK)
		return
	case k == nil && p.waits:
		<-e.done
		k = e.kept
	case k == nil:
		http.Error(w, "it is running", http.StatusConflict)
		return
	}
	if p.bug == "replay" {
		k = &kept{k.status, k.header, k.body + " "}
	}
	p.write(w, k)
}

func (p *peer) write(w http.ResponseWriter, k *kept) {
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(k.status)
	_, _ = io.WriteString(w, k.body)
}

// place is a server on an address that stays the same when it is killed and started again.
type place struct {
	t      *testing.T
	addr   string
	server *http.Server
	// open makes the handler, and what ends it.
	open func() (http.Handler, func())
	end  func()
}

// newPlace serves until the end of the test.
func newPlace(t *testing.T, open func() (http.Handler, func())) *place {
	t.Helper()
	p := &place{t: t, addr: "127.0.0.1:0", open: open}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *place) start() {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Error(err)
		return
	}
	p.addr = l.Addr().String()
	var h http.Handler
	h, p.end = p.open()
	p.server = &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = p.server.Serve(l) }()
}

// kill resets all connections, and ends the handler's world.
func (p *place) kill() {
	_ = p.server.Close()
	p.end()
}

func (p *place) restart(context.Context) error {
	p.kill()
	p.start()
	return nil
}

// countURL serves the count of the app's effects.
func countURL(t *testing.T, a *app) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, a.effects.Load()) }))
	t.Cleanup(srv.Close)
	return srv.URL
}
