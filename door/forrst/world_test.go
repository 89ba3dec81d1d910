package forrst_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// world is a service with functions that tests declare.
type world struct {
	t       *testing.T
	store   *faultyStore
	engine  *semel.Engine
	service *forrst.Service
	*told
}

// told is what the engine's Events got.
type told struct {
	mu       sync.Mutex
	answered []semel.Delivered
	troubled []error
}

// faultyStore doesn't answer while it is down.
type faultyStore struct {
	*memstore.Store
	down atomic.Bool
}

func (s *faultyStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if s.down.Load() {
		return nil, false, &semel.Error{Code: semel.CodeStoreUnavailable}
	}
	return s.Store.Apply(ctx, w)
}

func (s *faultyStore) Now(ctx context.Context) (store.Instant, error) {
	if s.down.Load() {
		return 0, &semel.Error{Code: semel.CodeStoreUnavailable}
	}
	return s.Store.Now(ctx)
}

// callerHeader says in these tests who sends a request.
const callerHeader = "X-Test-Caller"

func newWorld(t *testing.T, opts forrst.Options) *world {
	t.Helper()
	w := &world{t: t, store: &faultyStore{Store: memstore.New()}, told: &told{}}
	w.deploy(opts)
	return w
}

// deploy puts another service on the store.
func (w *world) deploy(opts forrst.Options) {
	t := w.t
	t.Helper()
	var err error
	events := &semel.Events{
		Answered: func(e semel.Delivered) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answered = append(w.answered, e)
		},
		Troubled: func(e semel.Troubled) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.troubled = append(w.troubled, e.Err)
		},
	}
	if w.engine, err = semel.New(w.store, &semel.Options{StoreTimeout: time.Second, Events: events}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.engine.Close(context.WithoutCancel(t.Context())) })
	if opts.Identify == nil {
		opts.Identify = identify
	}
	if w.service, err = forrst.New(w.engine, opts); err != nil {
		t.Fatal(err)
	}
}

// identify takes everybody at their word.
func identify(r *http.Request) (semelhttp.Caller, error) {
	return semelhttp.Caller{Principal: cmp.Or(r.Header.Get(callerHeader), "tester")}, nil
}

// serving is a world with one function, payments.charge 1.0.0.
func serving(t *testing.T, op semel.Operation, run forrst.Handler) *world {
	return newWorld(t, forrst.Options{PlainHash: true, Functions: []forrst.Function{charging(op, run)}})
}

func charging(op semel.Operation, run forrst.Handler) forrst.Function {
	return forrst.Function{Name: "payments.charge", Operation: op, Versions: []forrst.Version{{Version: "1.0.0", Run: run}}}
}

// charge is a handler that counts.
func charge(runs *atomic.Int64) forrst.Handler {
	return func(context.Context, semel.Execution, *forrst.Request) (any, error) {
		runs.Add(1)
		return json.RawMessage(`{"charge_id":"ch_abc","status":"succeeded"}`), nil
	}
}

// call is a request of payments.charge; options are those of the idempotency extension.
func call(id, arguments, options string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"call":{"function":"payments.charge","version":"1.0.0","arguments":%s},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":%s}]}`, id, arguments, options)
}

// said is an answer.
type said struct {
	status int
	header http.Header
	body   string

	ID         *string         `json:"id"`
	Result     json.RawMessage `json:"result"`
	Errors     []forrstError   `json:"errors"`
	Extensions []struct {
		URN  string         `json:"urn"`
		Data map[string]any `json:"data"`
	} `json:"extensions"`
	Meta struct {
		Action store.Action `json:"action"`
	} `json:"meta"`
}

type forrstError struct {
	Code    forrst.Code    `json:"code"`
	Message string         `json:"message"`
	Source  *forrst.Source `json:"source"`
	Details map[string]any `json:"details"`
}

// code is that of the first error; empty for a success.
func (s *said) code() forrst.Code {
	if len(s.Errors) == 0 {
		return ""
	}
	return s.Errors[0].Code
}

// data is that of an extension.
func (s *said) data(name string) map[string]any {
	for _, x := range s.Extensions {
		if strings.HasSuffix(x.URN, ":"+name) {
			return x.Data
		}
	}
	return nil
}

func (w *world) post(body string, change ...func(*http.Request)) *said {
	w.t.Helper()
	r := httptest.NewRequest("POST", "/forrst", strings.NewReader(body)).WithContext(w.t.Context())
	r.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(r)
	}
	rec := httptest.NewRecorder()
	w.service.ServeHTTP(rec, r)
	s := &said{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
	if err := json.Unmarshal(rec.Body.Bytes(), s); err != nil {
		w.t.Fatalf("%v: %s", err, rec.Body)
	}
	if (len(s.Errors) > 0) == (string(s.Result) != "null") && s.Errors != nil {
		w.t.Errorf("not exactly one of result and errors: %s", s.body)
	}
	return s
}

// want checks the status of HTTP, the code of the first error, and the status of the
// idempotency extension; empty: there is none.
func (s *said) want(t *testing.T, status int, code forrst.Code, idempotency string) {
	t.Helper()
	have, _ := s.data("idempotency")["status"].(string)
	if s.status != status || s.code() != code || have != idempotency {
		t.Fatalf("%d %q %q, want %d %q %q: %s", s.status, s.code(), have, status, code, idempotency, s.body)
	}
}

// published is one of the specification's examples, without white space.
func published(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
