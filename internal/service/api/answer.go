package api

import (
	"fmt"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

func answered(s *wire.Settling) bool {
	return s.Status != 0 || s.Headers != nil || s.Answer != nil || s.AnswerBytes != nil
}

// settledResult is the result that an operator gives: either a result of the execution
// API, or the HTTP answer that duplicates of a guarded request get.
func (a *API) settledResult(body *wire.Settling) (semel.Result, error) {
	switch {
	case !answered(body):
		return a.result(body.Result, "body")
	case body.JSON != nil || body.Bytes != nil:
		return semel.Result{}, a.invalid("body.result", "give a route's answer as status, headers and body, without a result")
	case body.Status == 0:
		return semel.Result{}, a.invalid("body.status", "headers and body need the status of the answer")
	case !FitsOutcome(body.Status, body.Outcome):
		return semel.Result{}, a.invalid("body.status", fmt.Sprintf("the status %d doesn't fit the outcome %q: completed has one below 400, rejected one from 400 to 499, failed one from 400", body.Status, body.Outcome))
	}
	answer := semelhttp.Answer{Status: body.Status, Header: http.Header(body.Headers)}
	if body.Answer != nil {
		answer.Body = []byte(*body.Answer)
	}
	var err error
	if answer.Body, err = a.given(answer.Body, body.AnswerBytes, "body.body_base64", "a body is text or bytes, not both"); err != nil {
		return semel.Result{}, err
	}
	res, err := answer.Result()
	if err != nil {
		return semel.Result{}, a.invalid("body.status", err.Error())
	}
	return res, nil
}

// FitsOutcome reports whether a guarded request that was answered with this status would
// have had this outcome.
func FitsOutcome(status int, outcome store.Disposition) bool {
	switch outcome {
	case semel.DispositionCompleted:
		return status < 400
	case semel.DispositionRejected:
		return status >= 400 && status < 500
	}
	return outcome == semel.DispositionFailed && status >= 400
}

// fits refuses a result that duplicates could not get: one that isn't an HTTP answer for
// a record of a route, or one that is too large to be kept.
func (x *exchange) fits(id semel.ID, s *semel.Settlement) error {
	if s.Result.IsZero() {
		return nil
	}
	rec, err := x.api.engine.Lookup(x.ctx(), id)
	switch {
	case err != nil:
		return x.missing(err)
	case len(s.Result.Data) > rec.Policy.MaxResult:
		return x.api.invalid("body", fmt.Sprintf("the result has %d bytes and the operation keeps %d, so duplicates would get nothing of it", len(s.Result.Data), rec.Policy.MaxResult))
	}
	if _, ok := semelhttp.ParseAnswer(s.Result); !ok && !s.Force && x.api.opts.Answers(&rec) {
		return x.api.invalid("body.result", "the call came as an HTTP request, so duplicates get an HTTP answer: "+
			"give status, headers and body instead of a result (--status, --header and --result of 'semel records settle')")
	}
	return nil
}
