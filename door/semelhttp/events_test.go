package semelhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// Each guarded request that is answered is an event, whether the engine has seen it or not.
func TestEachAnswerIsAnEvent(t *testing.T) {
	var told []semel.Delivered
	var decided []semel.Decided
	var ended []semel.Ended
	e := newEngine(t, &semel.Options{Events: &semel.Events{
		Answered: func(e semel.Delivered) { told = append(told, e) },
		Decided:  func(e semel.Decided) { decided = append(decided, e) },
		Ended:    func(e semel.Ended) { ended = append(ended, e) },
	}})
	var runs atomic.Int64
	g := newGuard(t, e, nil)
	h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs))
	call(h, "k", "1", nil)
	call(h, "k", "1", nil)
	call(h, "k", "2", nil)
	call(h, "", "1", nil)
	call(h, "k", "1", func(r *http.Request) { r.Header.Del("Authorization") })
	call(h, "k", "1", func(r *http.Request) { r.Method = http.MethodGet })
	g.Refuse(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), semelhttp.Profile{}, semelhttp.RefusalOf(door.CodeKeyMissing, ""))
	want := []semel.Delivered{
		{Decision: semel.Execute}, {Decision: semel.Replay}, {Decision: semel.Conflict, Code: semel.CodeConflict},
		{Code: door.CodeKeyInvalid}, {Code: door.CodeUnidentified}, {Code: door.CodeKeyMissing},
	}
	if !slices.EqualFunc(told, want, func(got, want semel.Delivered) bool {
		return got.Door == semelhttp.Name && got.Decision == want.Decision && got.Code == want.Code && (got.ID.Key == "k") == (got.Decision != "")
	}) {
		t.Errorf("told of %+v", told)
	}
	if _, ok := errors.AsType[*semelhttp.Refused](told[4].Err); !ok || told[4].ID.Operation != "op" || told[4].Status != 401 || told[0].Status != 201 || told[0].Attempt != 1 || told[0].Took <= 0 {
		t.Errorf("told of %+v", told[4])
	}
	if len(decided) != 3 || len(ended) != 1 || decided[2].Door != semelhttp.Name || ended[0].Door != semelhttp.Name {
		t.Errorf("decided %+v, ended %+v", decided, ended)
	}
}

// A request that runs without a guard because the store doesn't answer is told of, and no other.
func TestFailingOpenIsAnEvent(t *testing.T) {
	var told []semel.Delivered
	st := memstore.New()
	e, err := semel.New(st, &semel.Options{Events: &semel.Events{Answered: func(e semel.Delivered) { told = append(told, e) }}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	var runs atomic.Int64
	g := newGuard(t, e, nil)
	open := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "search"}, FailOpen: true}, charged(&runs))
	closed := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, charged(&runs))
	call(open, "k", "1", nil)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if w := call(open, "k", "1", nil); w.Header().Get(semelhttp.UnguardedHeader) != string(semel.CodeStoreUnavailable) {
			t.Errorf("answered %d %v", w.Code, w.Header())
		}
	}
	call(closed, "k", "1", nil)
	var got []string
	for _, e := range told {
		got = append(got, fmt.Sprint(e.ID.Operation, e.FailedOpen, e.Decision, e.Code))
	}
	if want := "[searchfalseexecute searchtrue searchtrue payfalsestore_unavailable]"; fmt.Sprint(got) != want || runs.Load() != 3 {
		t.Errorf("%d runs, told of %v, want %s", runs.Load(), got, want)
	}
}
