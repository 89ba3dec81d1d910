package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestCallersThatAreRefused: an answer that says why, without the text of the error.
func TestCallersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		code   forrst.Code
		header string
	}{
		"nobody knows who it is":              {errors.New("a secret"), 401, forrst.Unauthorized, "WWW-Authenticate"},
		"it may not use the service":          {&semel.Error{Code: semel.CodeForbidden, Message: "a secret"}, 403, forrst.Forbidden, ""},
		"the store of callers doesn't answer": {&semel.Error{Code: semel.CodeStoreUnavailable, Message: "a secret"}, 503, forrst.Unavailable, "Retry-After"},
	} {
		var runs atomic.Int64
		w := newWorld(t, forrst.Options{
			Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs))},
			Identify:  func(*http.Request) (semelhttp.Caller, error) { return semelhttp.Caller{}, c.err },
		})
		s := w.post(call("req_1", "{}", `{"key":"k"}`))
		s.want(t, c.status, c.code, "")
		if s.ID != nil || strings.Contains(s.body, "secret") || c.header != "" && s.header.Get(c.header) == "" || (s.data("retry") != nil) != (c.status == 503) {
			t.Errorf("%s: %v %s", name, s.header, s.body)
		}
		answer, fault := w.answered[0], c.status == 503
		if runs.Load() != 0 || len(w.answered) != 1 || answer.Door != forrst.Name || answer.Code != semel.Code(c.code) || (answer.Err == nil) != fault || (len(w.troubled) == 1) != fault {
			t.Errorf("%s: executed %d times, told of %+v, troubled by %v", name, runs.Load(), w.answered, w.troubled)
		}
		if why := append(w.troubled, answer.Err)[0]; why != c.err {
			t.Errorf("%s: reported %v", name, why)
		}
	}
}

// TestKeysOfOthers: a key that somebody else has used, or used elsewhere, is refused.
func TestKeysOfOthers(t *testing.T) {
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	id := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"}
	if _, err := w.engine.Do(t.Context(), id, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil }); err != nil {
		t.Fatal(err)
	}
	s := w.post(call("req_1", "{}", `{"key":"k"}`))
	s.want(t, 409, forrst.Conflict, "")
	if d := s.Errors[0].Details; d["reason"] != "other_door" || d["key"] != "k" || s.data("retry") != nil {
		t.Error(s.body)
	}
	forbidding := semel.Operation{Authorize: func(context.Context, semel.Call, semel.Record) error { return errors.New("a secret") }}
	w = serving(t, forbidding, charge(&runs))
	s = w.post(call("req_1", "{}", `{"key":"k"}`))
	s.want(t, 403, forrst.Forbidden, "")
	if strings.Contains(s.body, "secret") || runs.Load() != 0 {
		t.Errorf("executed %d times: %s", runs.Load(), s.body)
	}
}

// TestCallsOfThePast: a key that says that it is older than results are kept.
func TestCallsOfThePast(t *testing.T) {
	var runs atomic.Int64
	w := serving(t, semel.Operation{RefuseLate: true}, charge(&runs))
	s := w.post(call("req_1", "{}", `{"key":"01890a5d-ac96-774b-bcce-b302099a8057"}`)) // of 2023
	s.want(t, 410, forrst.Gone, "")
	if s.Errors[0].Details["reason"] != "too_late" || s.data("retry") != nil || runs.Load() != 0 {
		t.Errorf("executed %d times: %s", runs.Load(), s.body)
	}
}

// TestRequestsThatBreakOff: what didn't arrive whole isn't executed, and may come again.
func TestRequestsThatBreakOff(t *testing.T) {
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	good := call("req_1", "{}", `{"key":"k"}`)
	s := w.post(good, func(r *http.Request) {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(good), iotest.ErrReader(io.ErrUnexpectedEOF)))
	})
	s.want(t, 400, forrst.InvalidRequest, "")
	if s.ID != nil || runs.Load() != 0 {
		t.Errorf("executed %d times: %s", runs.Load(), s.body)
	}
}

// TestSettledByPeople: a call that somebody settled without errors to show gets some.
func TestSettledByPeople(t *testing.T) {
	for outcome, want := range map[store.Disposition]struct {
		status  int
		code    forrst.Code
		message string
	}{
		semel.DispositionRejected: {409, forrst.Conflict, "The call was settled as rejected. The card is stolen."},
		semel.DispositionFailed:   {500, forrst.InternalError, "The call was settled as failed. The card is stolen."},
	} {
		w := serving(t, semel.Operation{OnFailure: semel.ReplayFailure}, failing(new(atomic.Int64), func() error { return semel.Unknown(errors.New("no answer")) }))
		w.post(call("req_1", "{}", `{"key":"k"}`)).want(t, 500, forrst.InternalError, "processing")
		id := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"}
		s := semel.Settlement{Outcome: outcome, Failure: &store.Failure{Message: "the card is stolen"}}
		if _, err := w.engine.Settle(t.Context(), id.ID(semel.SharePrincipal), s, "asked"); err != nil {
			t.Fatal(err)
		}
		got := w.post(call("req_2", "{}", `{"key":"k"}`))
		got.want(t, want.status, want.code, "cached")
		if got.Errors[0].Message != want.message || got.data("retry") != nil {
			t.Error(got.body)
		}
	}
}

// TestNoEndInTime: the first delivery is told so, and its copies that nobody knows.
func TestNoEndInTime(t *testing.T) {
	clause.Proves(t, "FOR-ERR.1")
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, semel.Operation{}, func(ctx context.Context, _ semel.Execution, _ *forrst.Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		s := w.post(call("req_1", "{}", `{"key":"k"}`))
		s.want(t, 408, forrst.DeadlineExceeded, "processing")
		if s.data("retry") != nil {
			t.Error(s.body)
		}
		w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 409, forrst.IdempotencyProcessing, "processing")
	})
}

// TestALostLease: an attempt that was taken for dead shows its own result only if no other
// has run since.
func TestALostLease(t *testing.T) {
	clause.Proves(t, "FOR-PROC.1")
	for _, c := range []struct {
		policy         semel.AfterAbandon
		copy, original int
		status         string
	}{
		{semel.HoldAbandoned, 409, 200, "processed"},
		{semel.RetryAbandoned, 200, 409, "processing"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var w *world
			var runs atomic.Int64
			w = serving(t, semel.Operation{OnAbandoned: c.policy}, func(context.Context, semel.Execution, *forrst.Request) (any, error) {
				n := runs.Add(1)
				if n == 1 {
					w.store.Advance(time.Hour)
					if s := w.post(call("req_2", "{}", `{"key":"k"}`)); s.status != c.copy {
						t.Errorf("%s: the copy got %d %s", c.policy, s.status, s.body)
					}
				}
				return n, nil
			})
			s := w.post(call("req_1", "{}", `{"key":"k"}`))
			if got, _ := s.data("idempotency")["status"].(string); s.status != c.original || got != c.status || s.status != 200 && s.code() != forrst.IdempotencyProcessing {
				t.Errorf("%s: the first got %d %s", c.policy, s.status, s.body)
			}
			s = w.post(call("req_3", "{}", `{"key":"k"}`))
			s.want(t, 200, "", "cached")
			if want := fmt.Sprint(runs.Load()); string(s.Result) != want {
				t.Errorf("%s: %s, want %s", c.policy, s.Result, want)
			}
		})
	}
}
