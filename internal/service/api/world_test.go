package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// failingStore is a memstore that can be told to fail.
type failingStore struct {
	*memstore.Store
	mu   sync.Mutex
	fail error // of all calls
	lost error // of writes
	mute error // of writes that are made all the same
	// toMeet is how many readers still have to come before those that have read go on;
	// then met is closed.
	toMeet int
	met    chan struct{}
}

// meet makes the next n readers of records wait until all of them have read.
func (w *world) meet(n int) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.toMeet, w.store.met = n, make(chan struct{})
}

func (s *failingStore) wait(ctx context.Context) {
	s.mu.Lock()
	met := s.met
	if s.toMeet == 0 {
		s.mu.Unlock()
		return
	}
	if s.toMeet--; s.toMeet == 0 {
		close(met)
	}
	s.mu.Unlock()
	select {
	case <-met:
	case <-ctx.Done():
	}
}

// plainStore hides the extras of a memstore, so that every call of the engine goes
// through here.
type plainStore struct{ s *failingStore }

func (p plainStore) broken() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.s.fail
}

func (p plainStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if err := p.broken(); err != nil {
		return nil, false, err
	}
	p.s.mu.Lock()
	lost, mute := p.s.lost, p.s.mute
	p.s.mu.Unlock()
	if lost != nil {
		return nil, false, lost
	}
	cur, applied, err := p.s.Store.Apply(ctx, w)
	if mute != nil {
		return nil, false, mute
	}
	return cur, applied, err
}

func (p plainStore) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if err := p.broken(); err != nil {
		return nil, err
	}
	rec, err := p.s.Store.Get(ctx, id)
	p.s.wait(ctx)
	return rec, err
}

func (p plainStore) Now(ctx context.Context) (store.Instant, error) { return p.s.Store.Now(ctx) }

func (p plainStore) Close() error { return p.s.Store.Close() }

func (p plainStore) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return p.s.Due(ctx, q)
}

func (p plainStore) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	return p.s.Store.Purge(ctx, refs)
}

func (p plainStore) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	return p.s.Watch(ctx, id)
}

func (p plainStore) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return p.s.Store.Search(ctx, q)
}

func (p plainStore) Extras() store.Extras {
	return store.Extras{Due: p, Purge: p, Watch: p, Search: p}
}

// world is a running service with its callers.
type world struct {
	t      *testing.T
	store  *failingStore
	engine *semel.Engine
	api    *API
	data   *httptest.Server
	admin  *httptest.Server
	checks map[string]*contract // by base URL
}

// callers are those that the test service accepts, by their tokens.
var callers = map[string]Caller{
	"shop":     {Tenant: "acme", Principal: "shop"},
	"other":    {Tenant: "acme", Principal: "other"},
	"stranger": {Tenant: "evil", Principal: "shop"},
	// Two unverified credentials, and a caller without any.
	"first":    {Tenant: "acme", Credential: "credential:first"},
	"second":   {Tenant: "acme", Credential: "credential:second"},
	"nothing":  {Tenant: "acme"},
	"viewer":   {Tenant: "acme", Principal: "vera", Role: Viewer},
	"operator": {Tenant: "acme", Principal: "otto", Role: Operator},
	"root":     {Principal: "root", Role: Admin, AllTenants: true},
	"nowhere":  {Principal: "nora", Role: Admin},
	"evilroot": {Tenant: "evil", Principal: "root", Role: Admin},
}

func identify(r *http.Request) (Caller, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	c, known := callers[token]
	if !ok || !known {
		return Caller{}, errors.New("the token is missing or not known")
	}
	return c, nil
}

var testOperations = []semel.Operation{
	{Name: "charge"},
	{Name: "retry", OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned},
	{Name: "mail", Effects: []string{"send", "log/*"}},
	{Name: "shared", Share: semel.ShareTenant, Authorize: func(_ context.Context, call semel.Call, _ semel.Record) error {
		if call.Principal == "other" {
			return errors.New("not for others")
		}
		return nil
	}},
	{Name: "confirmed", Confirmation: &semel.ConfirmationPolicy{}},
	{Name: "refund"},
	{Name: "refundable", Compensation: "refund", Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		return semel.Result{Data: []byte(`"undone"`)}, nil
	}},
	{Name: "reconciled", Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
		return semel.Settlement{}, errors.New("nobody knows")
	}},
	{Name: "look", Class: semel.ReadOnly},
	{Name: "late", RefuseLate: true},
	{Name: "rare", PerRecord: semel.Rate{PerSecond: 0.001, Burst: 1}},
	{Name: "small", MaxResult: 16},
	{Name: "kept", KeepPayload: true},
	{Name: "quick", Lease: 50e6, OnAbandoned: semel.RetryAbandoned},
	{Name: "rich", Financial: true, Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldLedger}, Effects: []string{"*"}, PerPrincipal: semel.Rate{PerSecond: 1000, Burst: 1000}},
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, store: &failingStore{Store: memstore.New()}}
	obs := NewObserver(plainStore{w.store})
	engine, err := semel.New(plainStore{w.store}, &semel.Options{Operations: testOperations, Events: obs.Events(), Node: "node-1", StoreTimeout: 50e6})
	if err != nil {
		t.Fatal(err)
	}
	w.engine = engine
	opts := Options{Engine: engine, Observer: obs, Identify: identify}
	for _, f := range change {
		f(&opts)
	}
	if w.api, err = New(opts); err != nil {
		t.Fatal(err)
	}
	w.data, w.admin = httptest.NewServer(w.api.Data()), httptest.NewServer(w.api.Admin())
	w.checks = map[string]*contract{w.data.URL: newContract(t, w.data.URL), w.admin.URL: newContract(t, w.admin.URL)}
	t.Cleanup(func() {
		w.api.Close()
		w.data.Close()
		w.admin.Close()
		_ = engine.Close(context.Background())
	})
	return w
}

// breakWrites makes all writes fail; nil mends them.
func (w *world) breakWrites(err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.lost = err
}

// muteWrites makes writes succeed, but return an error.
func (w *world) muteWrites(err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.mute = err
}

// breakStore makes the store fail; nil mends it.
func (w *world) breakStore(err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.fail = err
}

// got is an answer.
type got struct {
	t      *testing.T
	Status int
	Header http.Header
	Raw    []byte
	Body   map[string]any
}

// send sends a request as a caller, checks that the description allows the answer, and
// returns it. body is JSON text, or empty.
func (w *world) send(as, method, path, body string, headers ...string) got {
	w.t.Helper()
	base := w.data.URL
	if c := callers[as]; c.Role > NoRole {
		base = w.admin.URL
	}
	return w.sendTo(base, as, method, path, body, headers...)
}

func (w *world) sendTo(base, as, method, path, body string, headers ...string) got {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+as)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	g := got{t: w.t, Status: res.StatusCode, Header: res.Header}
	if g.Raw, err = io.ReadAll(res.Body); err != nil {
		w.t.Fatal(err)
	}
	if len(g.Raw) > 0 && strings.Contains(res.Header.Get("Content-Type"), "json") {
		dec := json.NewDecoder(bytes.NewReader(g.Raw))
		dec.UseNumber()
		if err := dec.Decode(&g.Body); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, g.Raw)
		}
	}
	w.checks[base].answer(w.t, method, path, &g)
	return g
}

// want fails unless the answer has the status.
func (g got) want(status int) got {
	g.t.Helper()
	if g.Status != status {
		g.t.Fatalf("status %d instead of %d: %s", g.Status, status, g.Raw)
	}
	return g
}

// refused fails unless the answer is a complete problem with the code.
func (g got) refused(status int, code string) got {
	g.t.Helper()
	g.want(status)
	if ct := g.Header.Get("Content-Type"); ct != "application/problem+json" {
		g.t.Fatalf("a problem of type %q: %s", ct, g.Raw)
	}
	if g.str("code") != code || g.str("type") != "/problems/"+code || g.num("status") != int64(status) || g.str("title") == "" || g.str("detail") == "" {
		g.t.Fatalf("not the problem %s: %s", code, g.Raw)
	}
	return g
}

// at finds a member by its path, such as record.error.code.
func (g got) at(path string) any {
	var v any = g.Body
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i := int(name[0] - '0')
			if i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func (g got) str(path string) string {
	s, _ := g.at(path).(string)
	return s
}

func (g got) num(path string) int64 {
	n, _ := g.at(path).(json.Number)
	i, _ := n.Int64()
	return i
}

// equal fails unless the member is the JSON value.
func (g got) equal(path, want string) got {
	g.t.Helper()
	have, err := json.Marshal(g.at(path))
	if err != nil || string(have) != want {
		g.t.Fatalf("%s is %s, not %s: %s", path, have, want, g.Raw)
	}
	return g
}

// begin begins an execution, and fails if it doesn't get it.
func (w *world) begin(as, operation, key string) got {
	w.t.Helper()
	return w.send(as, "POST", "/v1/operations/"+operation+"/executions", `{"payload":{"amount":1}}`, "Idempotency-Key", key).want(201)
}

func (w *world) replay(as, operation, key string) got {
	w.t.Helper()
	return w.send(as, "POST", "/v1/operations/"+operation+"/executions", `{"payload":{"amount":1}}`, "Idempotency-Key", key)
}

// on sends a request about an execution.
func (w *world) on(g got, as, what, body string) got {
	w.t.Helper()
	return w.send(as, "POST", "/v1/executions/"+g.str("execution")+"/"+what, body)
}
