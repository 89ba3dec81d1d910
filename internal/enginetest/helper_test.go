package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// rig is an engine on a memory store whose faults can be steered.
type rig struct {
	*semel.Engine
	store  *memstore.Store
	faults *faultstore.Control
	opts   semel.Options
}

// inBubble runs a test in virtual time with an engine that knows one operation,
// "op".
func inBubble(t *testing.T, op semel.Operation, body func(t *testing.T, r *rig)) {
	t.Helper()
	inBubbleWith(t, semel.Options{}, op, body)
}

func inBubbleWith(t *testing.T, opts semel.Options, op semel.Operation, body func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		wrapped, faults := faultstore.New(st, nil)
		op.Name = "op"
		opts.Operations = append(opts.Operations, op)
		e, err := semel.New(wrapped, &opts)
		if err != nil {
			t.Fatal(err)
		}
		body(t, &rig{Engine: e, store: st, faults: faults, opts: opts})
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := wrapped.Close(); err != nil {
			t.Error(err)
		}
	})
}

// second is another engine on the same store, as another process would be.
func (r *rig) second(t *testing.T) *semel.Engine {
	t.Helper()
	opts := r.opts
	opts.Node = "second"
	e, err := semel.New(r.store, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

func call(key string) semel.Call {
	return semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: key, Fingerprint: payload("x")}
}

func payload(s string) semel.Fingerprint {
	return semel.FingerprintOf(semel.SchemeRaw, []byte(s))
}

func id(key string) semel.ID {
	return semel.ID{Tenant: "t", Principal: "p", Operation: "op", Key: key}
}

func data(s string) semel.Result { return semel.Result{Data: []byte(s)} }

// begin expects to execute.
func begin(t *testing.T, e *semel.Engine, c semel.Call) *semel.Attempt {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	if err != nil || ans.Decision != semel.Execute || ans.Attempt == nil {
		t.Fatalf("begin: %s, %v; want execute", ans.Decision, err)
	}
	return ans.Attempt
}

// decides expects a decision other than execute.
func decides(t *testing.T, e *semel.Engine, c semel.Call, want semel.Decision) semel.Answer {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	if err != nil || ans.Decision != want {
		t.Fatalf("begin: %s, %v; want %s", ans.Decision, err, want)
	}
	return ans
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code semel.Code) *semel.Error {
	t.Helper()
	if !errors.Is(err, &semel.Error{Code: code}) {
		t.Fatalf("got %v, want code %s", err, code)
	}
	e, _ := errors.AsType[*semel.Error](err)
	return e
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
