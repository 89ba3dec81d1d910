package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/prefer"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

type getInput struct {
	ID     string `path:"id" maxLength:"8192" doc:"The record's id."`
	Prefer string `header:"Prefer" doc:"wait=N waits up to N seconds until the call has ended or is held." example:"wait=10"`
}

type getOutput struct {
	Applied string `header:"Preference-Applied"`
	Body    wire.RecordBody
}

func (b *builder) records() {
	route(b, about("getRecord", "records", "GET /v1/records/{id}", "Read a record, or wait for its outcome",
		""), NoRole, []semel.Code{semel.CodeNotFound, semel.CodeOtherCaller}, getRecord)
}

func getRecord(x *exchange, in *getInput) (*getOutput, error) {
	id, err := x.named(in.ID)
	if err != nil {
		return nil, err
	}
	wait := prefer.Wait(x.r.Header)
	// A caller who may not see the answer must not learn by waiting when there is one.
	rec, err := x.api.engine.Lookup(x.ctx(), id)
	if err == nil {
		err = x.shown(&rec)
	}
	if err == nil && wait > 0 {
		rec, err = x.api.engine.Internal().Await(x.ctx(), id, wait)
	}
	if err == nil {
		err = x.shown(&rec)
	}
	if err != nil {
		return nil, x.missing(err)
	}
	view, err := x.viewWithCounts(&rec)
	if err != nil {
		return nil, err
	}
	out := &getOutput{Body: wire.RecordBody{Record: view}}
	out.Applied = prefer.Applied(wait)
	return out, nil
}

type searchInput struct {
	Query  string `query:"q" maxLength:"16384" doc:"Qualifiers, as above." example:"operation:payments.charge state:processing held"`
	Cursor string `query:"cursor" maxLength:"8192" doc:"The next of the page before, with the same q."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

type onRecord[B any] struct {
	ID   string `path:"id" maxLength:"8192" doc:"The record's id."`
	Body B
}

func (b *builder) operatorRoutes() {
	route(b, about("searchRecords", "records", "GET /v1/records", "Search records",
		query.Qualifiers+"\n\n"), Viewer, []semel.Code{semel.CodeUnsupported}, searchRecords)
	route(b, about("listChoices", "operations", "GET /v1/operations/{operation}/choices", "List what you can say of a held call, and what its retries get then",
		"Of an operation that the service doesn't have: what holds for any."), Viewer, nil, listChoices)
	changing(b, "settleRecord", "settle", "Say what happened to a held record", "", nil, settleRecord)
	changing(b, "releaseRecord", "release", "Let the next delivery run a held record again, although nobody knows what happened",
		"This may repeat what the attempt did. Open effects must be settled first.",
		nil, func(x *exchange, in *onRecord[wire.Forced]) (*reply[wire.RecordBody], error) {
			return x.settle(in.ID, semel.Settlement{Outcome: semel.DispositionAbandoned, Fence: in.Body.Fence, Force: in.Body.Force}, in.Body.Reason)
		})
	changing(b, "purgeRecord", "purge", "Forget an ended record before its time", "The next delivery of the call runs again.",
		[]semel.Code{semel.CodeUnsupported}, purgeRecord)
	changing(b, "confirmRecord", "confirm", "Confirm a call that waits for its confirmation, in its caller's place",
		"The caller then repeats the call, unchanged and without a token, and it runs once. The confirmation ends with the time that the operation gives to a token. Of an operation with a further proof, only the caller can confirm a call.",
		[]semel.Code{semel.CodeUnsupported}, func(x *exchange, in *onRecord[wire.Seen]) (*reply[wire.RecordBody], error) {
			return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
				return x.api.engine.Confirm(x.ctx(), id, in.Body.Fence, x.caller.who(), in.Body.Reason)
			})
		})
	changing(b, "reconcileRecord", "reconcile", "Ask the reconciler about a held record now, rather than when it is due",
		"A node asks within seconds. Until it has an answer, the record stays held.", []semel.Code{semel.CodeUnsupported}, askNow)
	b.laterRoutes()
}

// changing registers an operator's change of a record, with the codes of its own.
func changing[I, O any](b *builder, id, path, summary, description string, codes []semel.Code, f func(x *exchange, in *I) (*O, error)) {
	route(b, about(id, "records", "POST /v1/records/{id}/"+path, summary,
		description), Operator, append(codes, semel.CodeNotFound, semel.CodeIllegalTransition, semel.CodeUnknown, semel.CodeUnknownOperation), f)
}

func searchRecords(x *exchange, in *searchInput) (*reply[wire.Page], error) {
	q, err := query.Parse(in.Query)
	if err != nil {
		return nil, x.api.invalid("query.q", err.Error())
	}
	if bound := x.tenant(); bound != nil {
		if q.Tenant != nil && *q.Tenant != *bound {
			return nil, x.api.newProblem(semel.CodeForbidden, "the caller may see only their own tenant's records")
		}
		q.Tenant = bound
	}
	q.Cursor, q.Limit = in.Cursor, in.Limit
	found, err := x.api.engine.Search(x.ctx(), q)
	if err != nil {
		return nil, err
	}
	out := &reply[wire.Page]{wire.Page{Records: x.views(found.Records, false), Next: found.Next}}
	if x.tenant() == nil {
		for _, err := range found.Unreadable {
			out.Body.Unreadable = append(out.Body.Unreadable, err.Error())
		}
	}
	return out, nil
}

// change lets an operator change the record with a name, and answers with the new record.
func (x *exchange) change(name string, f func(id semel.ID) (semel.Record, error)) (*reply[wire.RecordBody], error) {
	id, err := x.named(name)
	if err != nil || !x.oversees(id.Tenant) {
		return nil, x.noRecord()
	}
	rec, err := f(id)
	if err != nil {
		return nil, x.missing(err)
	}
	return &reply[wire.RecordBody]{wire.RecordBody{Record: x.view(&rec)}}, nil
}

func settleRecord(x *exchange, in *onRecord[wire.Settling]) (*reply[wire.RecordBody], error) {
	body := &in.Body
	s := semel.Settlement{Outcome: body.Outcome, Failure: (*store.Failure)(body.Error), Fence: body.Fence, Force: body.Force}
	hasResult := body.JSON != nil || body.Bytes != nil || answered(body)
	switch {
	case s.Outcome == semel.DispositionCompleted && s.Failure != nil:
		return nil, x.api.invalid("body.error", "a completed call has no error")
	case hasResult && (body.Outcome == 0 || s.Outcome == semel.DispositionAborted):
		return nil, x.api.invalid("body.result", "only a completed, rejected or failed call has a result")
	case body.Outcome == 0 && s.Failure != nil:
		return nil, x.api.invalid("body.error", "an error needs an outcome")
	case body.Outcome == 0 && len(body.Effects) == 0:
		return nil, x.api.invalid("body.outcome", "give an outcome, or say what happened to the effects")
	}
	var err error
	if s.Result, err = x.api.settledResult(body); err != nil {
		return nil, err
	}
	for i := range body.Effects {
		ef, err := x.api.finding(&body.Effects[i], "body.effects["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		s.Effects = append(s.Effects, ef)
	}
	if s.Messages, err = x.api.messages(body.Messages, "body"); err != nil {
		return nil, err
	}
	return x.settle(in.ID, s, body.Reason)
}

func (x *exchange) settle(name string, s semel.Settlement, reason string) (*reply[wire.RecordBody], error) {
	return x.change(name, func(id semel.ID) (semel.Record, error) {
		if err := x.fits(id, &s); err != nil {
			return semel.Record{}, err
		}
		for i := range s.Messages {
			if err := x.api.maySend(id, s.Messages[i].Destination); err != nil {
				return semel.Record{}, err
			}
		}
		s.Who = x.caller.who()
		return x.api.engine.Settle(x.ctx(), id, s, reason)
	})
}

type choiceList struct {
	Choices []choice `json:"choices" nullable:"false"`
}

type choice struct {
	Outcome store.Disposition `json:"outcome" enum:"completed,rejected,failed,aborted,abandoned" doc:"To settle it with; abandoned: by a release."`
	Answer  bool              `json:"answer" doc:"Whether you give the answer that retries get."`
	Says    string            `json:"says"`
	Retries string            `json:"retries" doc:"What they get then."`
}

func listChoices(x *exchange, in *operationInput) (*reply[choiceList], error) {
	op, _ := x.api.engine.Internal().Operation(in.Operation)
	failed := map[semel.AfterFailure]string{
		semel.ReplayFailure: "Each retry gets the failure that you give.", semel.RetryFailure: "The next retry runs it again.",
		"": "Whether retries get this failure or run it again is up to the policy of the operation.",
	}[op.OnFailure]
	return &reply[choiceList]{choiceList{[]choice{
		{semel.DispositionCompleted, true, "It was done", "Each retry gets the answer that you give."},
		{semel.DispositionCompleted, false, "It was done, and nobody knows the answer", "Each retry is told that it was done, without an answer: by 410 over HTTP."},
		{semel.DispositionRejected, true, "It was refused for good", "Each retry gets the refusal that you give."},
		{semel.DispositionFailed, true, "It failed", failed},
		{semel.DispositionAborted, false, "Nothing happened", "The next retry runs it again."},
		{semel.DispositionAbandoned, false, "Nobody knows, and it may run again", "The next retry runs it again. If it was done before, it is done twice."},
	}}}, nil
}

func askNow(x *exchange, in *onRecord[struct{}]) (*reply[wire.RecordBody], error) {
	return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
		if op, _ := x.api.engine.Internal().Operation(id.Operation); op.Reconcile == nil {
			return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the operation " + id.Operation + " has no reconciler to ask"}
		}
		return x.api.engine.Settle(x.ctx(), id, semel.Settlement{RetryAfter: time.Nanosecond}, "") // it is due at once
	})
}

func purgeRecord(x *exchange, in *onRecord[wire.Purging]) (*struct{}, error) {
	why := semel.Removal{Reason: in.Body.Reason, Who: x.caller.who(), Fence: in.Body.Fence, Force: in.Body.Force, EraseEvidence: in.Body.EraseEvidence}
	_, err := x.change(in.ID, func(id semel.ID) (semel.Record, error) {
		return semel.Record{}, x.api.engine.Purge(x.ctx(), id, why)
	})
	return nil, err
}

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
