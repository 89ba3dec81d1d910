package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// failing runs a function that returns an error, and counts.
func failing(runs *atomic.Int64, err func() error) forrst.Handler {
	return func(context.Context, semel.Execution, *forrst.Request) (any, error) {
		runs.Add(1)
		return nil, err()
	}
}

// What a duplicate gets after an error.
const (
	replayed  = "the same"
	runsAgain = "another execution"
	held      = "nothing before somebody finds out"
)

// TestEveryCode: its status, what a duplicate gets, and whether it is worth asking again,
// for functions of this process and of an upstream, of operations that say nothing and of
// financial ones.
func TestEveryCode(t *testing.T) {
	clause.Proves(t, "FOR-ERR.1", "FOR-FAIL.1", "FOR-DUP.1", "FOR-DATA.1", "IDS-V.2")
	table := map[forrst.Code]struct {
		status int
		then   string
		retry  string // where a duplicate runs
	}{
		forrst.ParseError:             {400, runsAgain, ""},
		forrst.InvalidRequest:         {400, runsAgain, ""},
		forrst.InvalidProtocolVersion: {400, runsAgain, ""},
		forrst.FunctionNotFound:       {404, runsAgain, ""},
		forrst.VersionNotFound:        {404, runsAgain, ""},
		forrst.FunctionDisabled:       {503, held, "fixed 30 2"},
		forrst.InvalidArguments:       {400, replayed, ""},
		forrst.SchemaValidationFailed: {422, replayed, ""},
		forrst.ExtensionNotSupported:  {400, runsAgain, ""},
		forrst.ExtensionNotApplicable: {400, runsAgain, ""},
		forrst.Unauthorized:           {401, runsAgain, ""},
		forrst.Forbidden:              {403, replayed, ""},
		forrst.NotFound:               {404, replayed, ""},
		forrst.Conflict:               {409, replayed, ""},
		forrst.Gone:                   {410, replayed, ""},
		forrst.DeadlineExceeded:       {408, held, "immediate 0 1"},
		forrst.RateLimited:            {429, runsAgain, "fixed 60 3"},
		forrst.InternalError:          {500, replayed, "exponential 1 3"},
		forrst.Unavailable:            {503, held, "exponential 1 5"},
		forrst.DependencyError:        {502, held, "exponential 2 3"},
		forrst.IdempotencyConflict:    {409, runsAgain, ""},
		forrst.IdempotencyProcessing:  {409, held, "fixed 1 3"},
		forrst.AsyncOperationNotFound: {404, replayed, ""},
		forrst.AsyncOperationFailed:   {500, replayed, ""},
		forrst.AsyncCannotCancel:      {400, replayed, ""},
		forrst.BatchFailed:            {400, replayed, ""},
		forrst.BatchTooLarge:          {400, replayed, ""},
		forrst.BatchTimeout:           {504, held, "exponential 1 3"},
		forrst.ServerMaintenance:      {503, held, "fixed 60 1"},
		forrst.FunctionMaintenance:    {503, held, "fixed 60 1"},
		forrst.ReplayNotFound:         {404, replayed, ""},
		forrst.ReplayExpired:          {410, replayed, ""},
		forrst.ReplayAlreadyComplete:  {409, replayed, ""},
		forrst.ReplayCancelled:        {410, replayed, ""},
		"SHOP_SOLD_OUT":               {400, replayed, ""},
	}
	source, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Code = "([A-Z_]+)"`).FindAllSubmatch(source, -1) {
		if _, known := table[forrst.Code(m[1])]; !known {
			t.Errorf("there is no line for %s", m[1])
		}
	}
	for code, c := range table {
		for _, where := range []string{"here", "upstream"} {
			for name, op := range map[string]semel.Operation{
				"": {}, ", financial": {Financial: true, OnAbandoned: semel.RetryAbandoned}, ", with a ledger": {Effects: []string{}},
				", retried by name": {OnFailure: semel.RetryFailure},
			} {
				then := c.then
				failed := code == forrst.InternalError || code == forrst.AsyncOperationFailed
				if then == held && where == "here" && !op.Financial && code != forrst.IdempotencyProcessing {
					failed, then = true, replayed // nobody else can have said it
				}
				switch {
				case op.Financial && code == forrst.Forbidden:
					then = held
				case failed && name == ", retried by name":
					then = runsAgain
				case then == held && where == "here" && name == ", with a ledger":
					then = runsAgain // the ledger proves that nothing was done
				}
				t.Run(string(code)+" "+where+name, func(t *testing.T) {
					t.Parallel()
					everyCode(t, code, where, op, c.status, then, c.retry)
				})
			}
		}
	}
}

func everyCode(t *testing.T, code forrst.Code, where string, op semel.Operation, status int, then, advice string) {
	var runs atomic.Int64
	w := serving(t, op, failing(&runs, func() error {
		return &forrst.Error{Code: code, Message: "Told", Source: forrst.At("call", "arguments", "a/b"), Details: map[string]int{"n": 1}}
	}))
	if where == "upstream" {
		u := newUpstream(t, func(w http.ResponseWriter, _ int) string {
			runs.Add(1)
			w.WriteHeader(status)
			return `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"ID","result":null,"errors":[{"code":"` + string(code) + `","message":"Told","source":{"pointer":"/call/arguments/a~1b"},"details":{"n":1}}]}`
		})
		w = before(t, op, forrst.UpstreamOptions{URL: u.URL})
	}
	first, second := w.post(call("req_1", "{}", `{"key":"k"}`)), w.post(call("req_2", "{}", `{"key":"k"}`))
	switch then {
	case replayed:
		first.want(t, status, code, "processed")
		second.want(t, status, code, "cached")
	case runsAgain: // and nothing is said to be processed
		first.want(t, status, code, "")
		second.want(t, status, code, "")
	case held:
		first.want(t, status, code, "processing")
		second.want(t, 409, forrst.IdempotencyProcessing, "processing")
		if second.Errors[0].Details["reason"] != "outcome_unknown" {
			t.Errorf("%s", second.body)
		}
	}
	if runs.Load() != map[string]int64{replayed: 1, runsAgain: 2, held: 1}[then] || *second.ID != "req_2" {
		t.Errorf("executed %d times: %s", runs.Load(), second.body)
	}
	if (first.data("idempotency")["expires_at"] != nil) != (then == replayed) || then != runsAgain && second.data("idempotency")["original_request_id"] != "req_1" {
		t.Errorf("%s\n%s", first.body, second.body)
	}
	if e := second.Errors[0]; then != held && (e.Message != "Told" || e.Source.Pointer != "/call/arguments/a~1b" || e.Details["n"] != 1.0) {
		t.Errorf("%s", second.body)
	}
	// Another try is advised only if it would run, and by that not twice.
	if then != runsAgain {
		advice = ""
	}
	retry := ""
	if r := first.data("retry"); r != nil {
		after := 0.0
		if d, ok := r["after"].(map[string]any); ok {
			after = d["value"].(float64)
		}
		retry = fmt.Sprint(r["strategy"], " ", after, " ", r["max_attempts"])
	}
	if retry != advice || (first.header.Get("Retry-After") != "") != (advice != "" && !strings.Contains(advice, " 0 ")) {
		t.Errorf("retry %q: %s", retry, first.body)
	}
}

func TestOtherErrors(t *testing.T) {
	many := forrst.Errors{{Code: forrst.InvalidArguments, Message: "one"}, {Code: forrst.NotFound, Message: "two"}}
	for name, c := range map[string]struct {
		op      semel.Operation
		err     error
		status  int
		code    forrst.Code
		status2 int
		code2   forrst.Code
		runs    int64
	}{
		"several at once are one answer":     {semel.Operation{}, many, 400, forrst.InvalidArguments, 400, forrst.InvalidArguments, 1},
		"a status of its own":                {semel.Operation{}, &forrst.Error{Code: "SHOP_CLOSED", Status: 409}, 409, "SHOP_CLOSED", 409, "SHOP_CLOSED", 1},
		"a status that isn't about the call": {semel.Operation{}, &forrst.Error{Code: "SHOP_BUSY", Status: 429}, 429, "SHOP_BUSY", 429, "SHOP_BUSY", 2},
		"a failure of its own":               {semel.Operation{}, &forrst.Error{Code: "SHOP_DOWN", Status: 503}, 503, "SHOP_DOWN", 503, "SHOP_DOWN", 1},
		"a status that is none":              {semel.Operation{}, &forrst.Error{Code: "SHOP_ODD", Status: 200}, 400, "SHOP_ODD", 400, "SHOP_ODD", 1},
		"a failure that is retried by name":  {semel.Operation{OnFailure: semel.RetryFailure}, errors.New("a secret"), 500, forrst.InternalError, 500, forrst.InternalError, 2},
		"a plain error":                      {semel.Operation{}, errors.New("a secret"), 500, forrst.InternalError, 500, forrst.InternalError, 1},
		"marked as rejected":                 {semel.Operation{}, semel.Rejected("no", &forrst.Error{Code: forrst.InternalError}), 500, forrst.InternalError, 500, forrst.InternalError, 1},
		"a timeout of its own":               {semel.Operation{}, &forrst.Error{Code: "SHOP_SLOW", Status: 504}, 504, "SHOP_SLOW", 504, "SHOP_SLOW", 1},
		"a timeout where money moves":        {semel.Operation{Financial: true}, &forrst.Error{Code: "SHOP_SLOW", Status: 504}, 504, "SHOP_SLOW", 409, forrst.IdempotencyProcessing, 1},
		"a timeout among others":             {semel.Operation{}, append(forrst.Errors{{Code: forrst.BatchTimeout}}, many...), 400, forrst.BatchTimeout, 400, forrst.BatchTimeout, 1},
		"one among others where money moves": {semel.Operation{Financial: true}, append(forrst.Errors{{Code: forrst.BatchTimeout}}, many...), 400, forrst.BatchTimeout, 409, forrst.IdempotencyProcessing, 1},
		"marked as a failure":                {semel.Operation{}, semel.Failure(&forrst.Error{Code: forrst.DependencyError}), 502, forrst.DependencyError, 502, forrst.DependencyError, 1},
		"marked as aborted":                  {semel.Operation{}, semel.Aborted(&forrst.Error{Code: forrst.NotFound}), 404, forrst.NotFound, 404, forrst.NotFound, 2},
		"marked as unknown":                  {semel.Operation{}, semel.Unknown(&forrst.Error{Code: forrst.DependencyError}), 502, forrst.DependencyError, 409, forrst.IdempotencyProcessing, 1},
		"details without a JSON form":        {semel.Operation{}, &forrst.Error{Code: forrst.NotFound, Details: func() {}}, 404, forrst.NotFound, 404, forrst.NotFound, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			w := serving(t, c.op, failing(&runs, func() error { return c.err }))
			first := w.post(call("req_1", "{}", `{"key":"k"}`))
			second := w.post(call("req_2", "{}", `{"key":"k"}`))
			if first.status != c.status || first.code() != c.code || second.status != c.status2 || second.code() != c.code2 || runs.Load() != c.runs {
				t.Errorf("%d runs\n%d %s\n%d %s", runs.Load(), first.status, first.body, second.status, second.body)
			}
			if strings.Contains(first.body+second.body, "secret") {
				t.Error("the text of an error was shown")
			}
			if c.runs == 1 && c.code2 != forrst.IdempotencyProcessing && (first.data("retry") != nil || second.data("retry") != nil) {
				t.Errorf("it would only get this again: %s", first.body)
			}
		})
	}
}

// TestUnknownOutcomes: what may have been done is not done again, and isn't processing for
// ever: the answer says that the outcome is unknown, and ends when it is settled.
func TestUnknownOutcomes(t *testing.T) {
	clause.Proves(t, "FOR-PROC.1", "FOR-LIFE.1")
	for name, run := range map[string]forrst.Handler{
		"an effect without a result": func(ctx context.Context, x semel.Execution, _ *forrst.Request) (any, error) {
			_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) { return 0, errors.New("no answer") })
			return nil, err
		},
		"no end in time": func(ctx context.Context, _ semel.Execution, _ *forrst.Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"no JSON form": func(context.Context, semel.Execution, *forrst.Request) (any, error) { return func() {}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int64
				w := serving(t, semel.Operation{}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
					runs.Add(1)
					return run(ctx, x, r)
				})
				if s := w.post(call("req_1", "{}", `{"key":"k"}`)); s.status < 400 || s.data("idempotency")["status"] != "processing" || s.data("retry") != nil {
					t.Errorf("%d %s", s.status, s.body)
				}
				s := w.post(call("req_2", "{}", `{"key":"k"}`))
				s.want(t, 409, forrst.IdempotencyProcessing, "processing")
				if d := s.Errors[0].Details; d["reason"] != "outcome_unknown" || d["key"] != "k" || d["retry_after"] == nil || runs.Load() != 1 {
					t.Errorf("executed %d times: %s", runs.Load(), s.body)
				}
				// Somebody finds out what happened.
				id := (&semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"})
				settlement := semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(`{"charge_id":"ch_1"}`)}}
				for _, ef := range []string{"charge"} {
					if name == "an effect without a result" {
						settlement.Effects = []store.EffectFinding{{Name: ef, State: store.EffectConfirmed}}
					}
				}
				if _, err := w.engine.Settle(t.Context(), id.ID(semel.SharePrincipal), settlement, "support"); err != nil {
					t.Fatal(err)
				}
				s = w.post(call("req_3", "{}", `{"key":"k"}`))
				s.want(t, 200, "", "cached")
				if string(s.Result) != `{"charge_id":"ch_1"}` {
					t.Error(s.body)
				}
			})
		})
	}
}

// TestAServerThatDied leaves a key that is processing as long as its lease lasts, and then
// one whose outcome is unknown, until somebody settles it.
func TestAServerThatDied(t *testing.T) {
	clause.Proves(t, "FOR-LIFE.1")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		died, end := make(chan struct{}), make(chan struct{})
		opts := forrst.Options{PlainHash: true, Functions: []forrst.Function{charging(semel.Operation{Lease: 5 * time.Second},
			func(_ context.Context, x semel.Execution, _ *forrst.Request) (any, error) {
				runs.Add(1)
				x.(*semel.Attempt).Detach()
				close(died)
				<-end
				return nil, errors.New("nobody hears of it")
			})}}
		w := newWorld(t, opts)
		dead := *w
		var posts sync.WaitGroup
		posts.Go(func() { dead.post(call("req_1", "{}", `{"key":"k"}`)) })
		<-died
		w.deploy(opts)
		deliver := func(id string, reason any) {
			t.Helper()
			s := w.post(call(id, "{}", `{"key":"k"}`))
			s.want(t, 409, forrst.IdempotencyProcessing, "processing")
			if got := s.Errors[0].Details["reason"]; got != reason || s.Errors[0].Details["retry_after"] == nil {
				t.Errorf("%s: the reason is %v, want %v", id, got, reason)
			}
		}
		deliver("req_2", nil)
		<-time.After(4 * time.Second)
		deliver("req_3", nil)
		<-time.After(2 * time.Second)
		deliver("req_4", "outcome_unknown")
		<-time.After(48 * time.Hour)
		deliver("req_5", "outcome_unknown")
		id := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"}
		settlement := semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(`{"charge_id":"ch_1"}`)}}
		if _, err := w.engine.Settle(t.Context(), id.ID(semel.SharePrincipal), settlement, "support"); err != nil {
			t.Fatal(err)
		}
		w.post(call("req_6", "{}", `{"key":"k"}`)).want(t, 200, "", "cached")
		close(end)
		posts.Wait()
		w.post(call("req_7", "{}", `{"key":"k"}`)).want(t, 200, "", "cached")
		if runs.Load() != 1 {
			t.Errorf("executed %d times", runs.Load())
		}
	})
}

// TestSettledOverHTTP: a reconciler that is asked over HTTP gives an answer of HTTP.
func TestSettledOverHTTP(t *testing.T) {
	for body, status := range map[string]int{`{"charge_id":"ch_1"}`: 200, "no JSON": 410} {
		w := serving(t, semel.Operation{}, failing(new(atomic.Int64), func() error { return semel.Unknown(errors.New("no answer")) }))
		w.post(call("req_1", "{}", `{"key":"k"}`))
		said := semelhttp.Answer{Status: 201, Body: []byte(body)}
		result, err := said.Result()
		if err != nil {
			t.Fatal(err)
		}
		id := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"}
		if _, err := w.engine.Settle(t.Context(), id.ID(semel.SharePrincipal), semel.Settlement{Outcome: semel.DispositionCompleted, Result: result}, "asked"); err != nil {
			t.Fatal(err)
		}
		if s := w.post(call("req_2", "{}", `{"key":"k"}`)); s.status != status || status == 200 && string(s.Result) != body {
			t.Errorf("%s: %d %s", body, s.status, s.body)
		}
	}
}

func TestAPanicIsNoAnswer(t *testing.T) {
	w := serving(t, semel.Operation{}, func(context.Context, semel.Execution, *forrst.Request) (any, error) { panic("out") })
	func() {
		defer func() {
			if v := recover(); v != "out" {
				t.Errorf("recovered %v", v)
			}
		}()
		w.post(call("req_1", "{}", `{"key":"k"}`))
	}()
	s := w.post(call("req_2", "{}", `{"key":"k"}`))
	s.want(t, 409, forrst.IdempotencyProcessing, "processing")
	if s.Errors[0].Details["reason"] != "outcome_unknown" {
		t.Errorf("nobody is told that it needs a decision: %s", s.body)
	}
}

func TestAResultThatIsTooLarge(t *testing.T) {
	w := serving(t, semel.Operation{MaxResult: 10}, charge(new(atomic.Int64)))
	s := w.post(call("req_1", "{}", `{"key":"k"}`))
	s.want(t, 200, "", "processed")
	if !strings.Contains(s.body, "ch_abc") {
		t.Error(s.body)
	}
	w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 410, forrst.Gone, "")

	w = serving(t, semel.Operation{MaxResult: 10}, failing(new(atomic.Int64), func() error { return &forrst.Error{Code: forrst.NotFound, Message: "Told"} }))
	w.post(call("req_1", "{}", `{"key":"k"}`)).want(t, 404, forrst.NotFound, "processed")
	w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 410, forrst.Gone, "")
}

// TestResultsKeepTheirText: numbers and characters that other encoders change.
func TestResultsKeepTheirText(t *testing.T) {
	const text = `{"b":1.10,"a":"<&>","n":12345678901234567890}`
	w := serving(t, semel.Operation{}, func(_ context.Context, _ semel.Execution, r *forrst.Request) (any, error) { return r.Arguments, nil })
	for _, status := range []string{"processed", "cached"} {
		s := w.post(call("req_1", text, `{"key":"k"}`))
		s.want(t, 200, "", status)
		if string(s.Result) != text {
			t.Errorf("%s: %s", status, s.Result)
		}
	}
}

func TestAStoreThatIsDown(t *testing.T) {
	t.Run("before the call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int64
			w := serving(t, semel.Operation{}, charge(&runs))
			w.store.down.Store(true)
			s := w.post(call("req_1", "{}", `{"key":"k"}`))
			s.want(t, 503, forrst.Unavailable, "")
			if runs.Load() != 0 || s.data("retry")["allowed"] != true || s.header.Get("Retry-After") == "" {
				t.Errorf("executed %d times: %s", runs.Load(), s.body)
			}
			w.store.down.Store(false)
			w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 200, "", "processed")
		})
	})
	t.Run("when the function has returned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int64
			var w *world
			w = serving(t, semel.Operation{}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
				w.store.down.Store(true)
				return charge(&runs)(ctx, x, r)
			})
			s := w.post(call("req_1", "{}", `{"key":"k"}`))
			s.want(t, 503, forrst.Unavailable, "")
			if strings.Contains(s.body, "ch_abc") {
				t.Errorf("answered before it was recorded: %s", s.body)
			}
			w.store.down.Store(false)
			<-time.After(10 * time.Second)
			w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 200, "", "cached")
			if runs.Load() != 1 {
				t.Errorf("executed %d times", runs.Load())
			}
		})
	})
}

func TestDuplicatesAreLimited(t *testing.T) {
	w := serving(t, semel.Operation{PerRecord: semel.Rate{PerSecond: 0.001, Burst: 1}}, charge(new(atomic.Int64)))
	w.post(call("req_1", "{}", `{"key":"k"}`)).want(t, 200, "", "processed")
	w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 200, "", "cached")
	s := w.post(call("req_3", "{}", `{"key":"k"}`))
	s.want(t, http.StatusTooManyRequests, forrst.RateLimited, "")
	if s.Errors[0].Details["retry_after"] == nil || s.data("retry")["strategy"] != "fixed" {
		t.Error(s.body)
	}
}

// TestTheOriginalRequestIsTheOneThatRan, not one that was refused before with proof that
// nothing was done.
func TestTheOriginalRequestIsTheOneThatRan(t *testing.T) {
	clause.Proves(t, "FOR-DATA.3")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, func(context.Context, semel.Execution, *forrst.Request) (any, error) {
		if runs.Add(1) == 1 {
			return nil, &forrst.Error{Code: forrst.Unauthorized, Message: "Told"}
		}
		return map[string]int{"n": 1}, nil
	})
	w.post(call("req_1", "{}", `{"key":"k"}`)).want(t, 401, forrst.Unauthorized, "")
	for _, c := range [][2]string{{"req_2", "processed"}, {"req_3", "cached"}} {
		got := w.post(call(c[0], "{}", `{"key":"k"}`))
		got.want(t, 200, "", c[1])
		if id := got.data("idempotency")["original_request_id"]; id != "req_2" {
			t.Errorf("%s: the original request is %v, want req_2", c[0], id)
		}
	}
}
