package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/query"
	"github.com/semelhq/semel/transport/semelhttp"
)

type getInput struct {
	ID     string `path:"id" maxLength:"8192" doc:"The record's id."`
	Prefer string `header:"Prefer" doc:"wait=N waits up to N seconds until the call has ended or is held." example:"wait=10"`
}

type getOutput struct {
	Applied string `header:"Preference-Applied"`
	Body    recordBody
}

func (b *builder) records() {
	route(b, huma.Operation{
		OperationID: "getRecord", Method: http.MethodGet, Path: "/v1/records/{id}", Tags: []string{"records"},
		Summary: "Read a record, or wait for its outcome",
	}, NoRole, []semel.Code{semel.CodeNotFound, semel.CodeOtherCaller}, getRecord)
}

func getRecord(x *exchange, in *getInput) (*getOutput, error) {
	id, err := x.named(in.ID)
	if err != nil {
		return nil, err
	}
	wait := semelhttp.PreferredWait(x.r.Header)
	// Who may not see the answer may not learn by waiting when there is one.
	rec, err := x.api.engine.Lookup(x.ctx(), id)
	if err == nil {
		err = x.shown(&rec)
	}
	if err == nil && wait > 0 {
		rec, err = x.api.engine.Await(x.ctx(), id, wait)
	}
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, x.noRecord()
	case err != nil:
		return nil, err
	}
	if err := x.shown(&rec); err != nil {
		return nil, err
	}
	out := &getOutput{Body: recordBody{x.api.viewOf(&rec)}}
	if wait > 0 {
		out.Applied = "wait=" + strconv.FormatInt(int64(wait/time.Second), 10)
	}
	return out, nil
}

type searchInput struct {
	Query  string `query:"q" maxLength:"4096" doc:"Words: operation: state: key: principal: tenant: before: after: and held. Values may be quoted." example:"operation:payments.charge state:processing held"`
	Cursor string `query:"cursor" maxLength:"8192" doc:"The next of the page before, with the same q."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

// page is one page of records, the newest first.
type page struct {
	Records []record `json:"records" nullable:"false"`
	Next    string   `json:"next,omitempty" doc:"Continues the search. Absent at its end. A page may be short, or empty, before the end."`
	// Unreadable is for callers who see all tenants: whose they are is not known.
	Unreadable []string `json:"unreadable,omitempty" doc:"Of each record in this part of the store that can't be read, why. Only for callers who see all tenants."`
}

type searchOutput struct{ Body page }

type settleInput struct {
	ID   string `path:"id" maxLength:"8192" doc:"The record's id."`
	Body settling
}

// settling is an operator's word about a held record.
type settling struct {
	Outcome     string              `json:"outcome,omitempty" enum:"completed,rejected,failed,aborted" doc:"How the attempt ended. Absent: only effects are settled; if none is open then, the next delivery runs again."`
	Result      json.RawMessage     `json:"result,omitempty"`
	ResultBytes *string             `json:"result_base64,omitempty"`
	Status      int                 `json:"status,omitempty" minimum:"200" maximum:"599" doc:"For a call that came as an HTTP request: the status that duplicates get."`
	Headers     map[string][]string `json:"headers,omitempty" doc:"The headers that they get, each with a list of values."`
	Answer      *string             `json:"body,omitempty" doc:"The body that they get, as text."`
	AnswerBytes *string             `json:"body_base64,omitempty" doc:"The same as bytes, in base64."`
	Error       *failure            `json:"error,omitempty"`
	Effects     []finding           `json:"effects,omitempty" maxItems:"1000" nullable:"false" doc:"What became of effects that were started and have no result."`
	Messages    []sending           `json:"messages,omitempty" maxItems:"100" nullable:"false" doc:"What the call sends, for the outcome completed."`
	Reason      string              `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
	Force       bool                `json:"force,omitempty" doc:"Also where this service does not know the operation, or has a route for it and the result is no HTTP answer."`
}

// forcedInput is for changes of records that the service may not know the operation of.
type forcedInput struct {
	ID   string `path:"id" maxLength:"8192" doc:"The record's id."`
	Body forced
}

type forced struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
	Force  bool   `json:"force,omitempty" doc:"Also where this service does not know the operation."`
}

type reasonInput struct {
	ID   string `path:"id" maxLength:"8192" doc:"The record's id."`
	Body reasoned
}

func (b *builder) operatorRoutes() {
	route(b, huma.Operation{
		OperationID: "searchRecords", Method: http.MethodGet, Path: "/v1/records", Tags: []string{"records"},
		Summary: "Search records", Description: query.Qualifiers + "\n\n",
	}, Viewer, []semel.Code{semel.CodeUnsupported}, searchRecords)
	settled := []semel.Code{semel.CodeNotFound, semel.CodeIllegalTransition, semel.CodeUnknown, semel.CodeUnknownOperation}
	route(b, huma.Operation{
		OperationID: "settleRecord", Method: http.MethodPost, Path: "/v1/records/{id}/settle", Tags: []string{"records"},
		Summary: "Say what became of a held record",
	}, Operator, settled, settleRecord)
	route(b, huma.Operation{
		OperationID: "releaseRecord", Method: http.MethodPost, Path: "/v1/records/{id}/release", Tags: []string{"records"},
		Summary:     "Let the next delivery run a held record again, although nobody knows what happened",
		Description: "This may repeat what the attempt did. Open effects must be settled first.",
	}, Operator, settled, func(x *exchange, in *forcedInput) (*recordOutput, error) {
		return x.settle(in.ID, semel.Settlement{Outcome: semel.DispositionAbandoned, Force: in.Body.Force}, in.Body.Reason)
	})
	route(b, huma.Operation{
		OperationID: "purgeRecord", Method: http.MethodPost, Path: "/v1/records/{id}/purge", Tags: []string{"records"},
		Summary: "Forget an ended record before its time", Description: "The next delivery of the call runs again.",
	}, Operator, append([]semel.Code{semel.CodeUnsupported}, settled...), purgeRecord)
	b.laterRoutes(settled)
}

func searchRecords(x *exchange, in *searchInput) (*searchOutput, error) {
	q, err := query.Parse(in.Query)
	if err != nil {
		return nil, x.api.invalid("query.q", err.Error())
	}
	if bound := x.tenant(); bound != nil {
		if q.Tenant != nil && *q.Tenant != *bound {
			return nil, x.api.newProblem(semel.CodeForbidden, "the caller sees the records of its own tenant only")
		}
		q.Tenant = bound
	}
	q.Cursor, q.Limit = in.Cursor, in.Limit
	found, err := x.api.engine.Search(x.ctx(), q)
	if err != nil {
		return nil, err
	}
	out := &searchOutput{page{Records: make([]record, 0, len(found.Records)), Next: found.Next}}
	for i := range found.Records {
		out.Body.Records = append(out.Body.Records, x.api.viewOf(&found.Records[i]))
	}
	if x.tenant() == nil {
		for _, err := range found.Unreadable {
			out.Body.Unreadable = append(out.Body.Unreadable, err.Error())
		}
	}
	return out, nil
}

// overseen is the name of a record that an operator may change.
func (x *exchange) overseen(text string) (semel.ID, error) {
	id, err := x.named(text)
	if err == nil && !x.oversees(id.Tenant) {
		err = x.noRecord()
	}
	return id, err
}

func settleRecord(x *exchange, in *settleInput) (*recordOutput, error) {
	body := &in.Body
	s := semel.Settlement{Failure: body.Error.kept(), Force: body.Force}
	if body.Outcome != "" {
		if err := s.Outcome.UnmarshalText([]byte(body.Outcome)); err != nil {
			return nil, err
		}
	}
	hasResult := body.Result != nil || body.ResultBytes != nil || body.answered()
	switch {
	case s.Outcome == semel.DispositionCompleted && s.Failure != nil:
		return nil, x.api.invalid("body.error", "what was completed has no error")
	case hasResult && (body.Outcome == "" || s.Outcome == semel.DispositionAborted):
		return nil, x.api.invalid("body.result", "only what was completed, rejected or failed has a result")
	case body.Outcome == "" && s.Failure != nil:
		return nil, x.api.invalid("body.error", "an error needs an outcome")
	case body.Outcome == "" && len(body.Effects) == 0:
		return nil, x.api.invalid("body.outcome", "say an outcome, or what became of effects")
	}
	var err error
	if s.Result, err = x.api.settledResult(body, s.Outcome); err != nil {
		return nil, err
	}
	for i, f := range body.Effects {
		ef, err := x.api.finding(f, "body.effects["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		s.Effects = append(s.Effects, ef)
	}
	for i, g := range body.Messages {
		m, err := x.api.message(g, "body.messages["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		s.Messages = append(s.Messages, m)
	}
	return x.settle(in.ID, s, body.Reason)
}

func (x *exchange) settle(text string, s semel.Settlement, reason string) (*recordOutput, error) {
	id, err := x.overseen(text)
	if err == nil {
		err = x.fits(id, &s)
	}
	if err != nil {
		return nil, err
	}
	for i := range s.Messages {
		if err := x.api.maySend(id, s.Messages[i].Destination); err != nil {
			return nil, err
		}
	}
	rec, err := x.api.engine.Settle(x.ctx(), id, s, reason)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, x.noRecord()
	case err != nil:
		return nil, err
	}
	return &recordOutput{recordBody{x.api.viewOf(&rec)}}, nil
}

func purgeRecord(x *exchange, in *forcedInput) (*struct{}, error) {
	id, err := x.overseen(in.ID)
	if err != nil {
		return nil, err
	}
	if err := x.api.engine.Purge(x.ctx(), id, semel.Removal{Reason: in.Body.Reason, Force: in.Body.Force}); errors.Is(err, semel.ErrNotFound) {
		return nil, x.noRecord()
	} else if err != nil {
		return nil, err
	}
	return nil, nil
}
