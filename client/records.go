package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
)

// Lookup is [semel.Engine.Lookup]. A record of another caller is not found, unless
// the client has a role and talks to the admin listener.
func (c *Client) Lookup(ctx context.Context, id semel.ID) (semel.Record, error) {
	return c.one(ctx, id, &request{method: http.MethodGet, url: c.base + recordPath(id), repeatable: true}, semel.CodeStoreUnavailable)
}

func recordPath(id semel.ID) string { return "/v1/records/" + id.Encode() }

// one sends a request that is answered with a record.
func (c *Client) one(ctx context.Context, id semel.ID, q *request, lost semel.Code) (semel.Record, error) {
	r, err := c.send(ctx, q, nil)
	if err != nil {
		return semel.Record{}, lostAnswer(err, lost)
	}
	if r.problem != nil {
		return semel.Record{}, r.problem.err(r.retry)
	}
	rec, err := recordIn(r, lost)
	if err != nil {
		return semel.Record{}, err
	}
	if rec.ID != id {
		return semel.Record{}, invalidAnswer(r, "it is about another record", lost)
	}
	return *rec, nil
}

type page struct {
	Records    []record `json:"records"`
	Next       string   `json:"next"`
	Unreadable []string `json:"unreadable"`
}

// Search is [semel.Engine.Search]. It needs the role viewer and the admin
// listener, and finds records of the caller's tenant; an admin without a tenant
// finds all.
func (c *Client) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	if q.Limit < 0 || q.Limit > semel.MaxSearchLimit {
		return semel.Page{}, &semel.Error{Code: semel.CodeInvalidCall, Message: "the limit of a page is 1 to 1000"}
	}
	params := url.Values{}
	if words := queryWords(&q); words != "" {
		params.Set("q", words)
	}
	if q.Cursor != "" {
		params.Set("cursor", q.Cursor)
	}
	if q.Limit > 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	v, r, err := call[page](ctx, c, &request{
		method: http.MethodGet, url: c.admin + "/v1/records?" + params.Encode(), repeatable: true,
	}, semel.CodeStoreUnavailable)
	if err != nil {
		return semel.Page{}, err
	}
	found := semel.Page{Next: v.Next}
	for _, text := range v.Unreadable {
		found.Unreadable = append(found.Unreadable, errors.New(text))
	}
	for i := range v.Records {
		rec, err := v.Records[i].value()
		if err != nil {
			return semel.Page{}, invalidAnswer(r, err.Error(), semel.CodeStoreUnavailable)
		}
		found.Records = append(found.Records, *rec)
	}
	return found, nil
}

// queryWords is the query in the words of the API.
func queryWords(q *semel.Query) string {
	var words []string
	word := func(name, value string) {
		if value != "" {
			words = append(words, name+":"+strconv.Quote(value))
		}
	}
	if q.Tenant != nil {
		words = append(words, "tenant:"+strconv.Quote(*q.Tenant))
	}
	word("principal", q.Principal)
	word("operation", q.Operation)
	word("key", q.Key)
	word("state", q.State.String())
	word("after", q.After.String())
	word("before", q.Before.String())
	if q.Held {
		words = append(words, "held")
	}
	return strings.Join(words, " ")
}

// settling is an operator's word about a held record.
type settling struct {
	Outcome  string    `json:"outcome,omitempty"`
	Bytes    *[]byte   `json:"result_base64,omitempty"`
	Error    *failure  `json:"error,omitempty"`
	Effects  []outcome `json:"effects,omitempty"`
	Reason   string    `json:"reason"`
	Messages []sending `json:"messages,omitempty"`
	Force    bool      `json:"force,omitempty"`
}

// Settle is [semel.Engine.Settle]. It needs the role operator and the admin
// listener. The outcome abandoned is [Client.Release]; a RetryAfter and
// Messages can't be told.
//
// Unlike the calls of a holder it is not repeated when its answer was lost: then
// the error has [semel.CodeUnknown], and Lookup tells.
func (c *Client) Settle(ctx context.Context, id semel.ID, s semel.Settlement, reason string) (semel.Record, error) {
	if s.RetryAfter != 0 {
		return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API can't be told when to ask again"}
	}
	if s.Outcome == semel.DispositionAbandoned {
		if len(s.Effects) > 0 || !s.Result.IsZero() || s.Failure != nil {
			return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API releases a record without a word on its effects: settle them first"}
		}
		return c.one(ctx, id, c.onRecord(id, "/release", forced{cut(reason), s.Force}), semel.CodeUnknown)
	}
	if s.Result.Tombstone {
		return semel.Record{}, errTombstone()
	}
	body := &settling{Outcome: s.Outcome.String(), Bytes: sentResult(s.Result), Error: sentFailure(s.Failure), Reason: cut(reason), Messages: sentMessages(s.Messages), Force: s.Force}
	for i := range s.Effects {
		f := &s.Effects[i]
		body.Effects = append(body.Effects, outcome{Name: f.Name, State: f.State, Bytes: sentResult(f.Result), Error: sentFailure(f.Failure)})
	}
	return c.one(ctx, id, c.onRecord(id, "/settle", body), semel.CodeUnknown)
}

// Release lets the next delivery run a held record again, although nobody knows
// what happened. Otherwise as Settle.
func (c *Client) Release(ctx context.Context, id semel.ID, reason string) (semel.Record, error) {
	return c.Settle(ctx, id, semel.Settlement{Outcome: semel.DispositionAbandoned}, reason)
}

type forced struct {
	Reason string `json:"reason"`
	Force  bool   `json:"force,omitempty"`
}

type reasoned struct {
	Reason string `json:"reason"`
}

// Purge is [semel.Engine.Purge]. Otherwise as Settle.
func (c *Client) Purge(ctx context.Context, id semel.ID, why semel.Removal) error {
	r, err := c.send(ctx, c.onRecord(id, "/purge", forced{cut(why.Reason), why.Force}), nil)
	if err != nil {
		return lostAnswer(err, semel.CodeUnknown)
	}
	if r.problem != nil {
		return r.problem.err(r.retry)
	}
	return nil
}

// Compensate undoes a completed call by the operation that its own names, in the name
// of the caller; see [semel.Engine.Compensate]. The error is that of the compensating
// call. Otherwise as Settle, but it may be asked for again.
func (c *Client) Compensate(ctx context.Context, id semel.ID, reason string) (semel.Record, error) {
	return c.one(ctx, id, c.onRecord(id, "/compensate", reasoned{cut(reason)}), semel.CodeUnknown)
}

// SettleMessage is [semel.Engine.SettleMessage] for what operators decide about a
// parked message: that it is replayed, or discarded. The API keeps the message of
// f.Failure as the reason, with a code of its own. All else is a dispatcher's to say,
// and is refused with [semel.CodeUnsupported]. Otherwise as Settle.
func (c *Client) SettleMessage(ctx context.Context, id semel.ID, messageID string, f semel.MessageFinding) (semel.Record, error) {
	var what string
	switch {
	case f.RetryAfter != 0 || f.Untried:
	case f.State == semel.MessagePending && f.Replay:
		what = "replay"
	case f.State == semel.MessageDiscarded && !f.Replay:
		what = "discard"
	}
	if what == "" {
		return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API can only be told to replay or discard a message"}
	}
	reason := "not given"
	if f.Failure != nil && f.Failure.Message != "" {
		reason = cut(f.Failure.Message)
	}
	return c.one(ctx, id, c.onRecord(id, "/messages/"+url.PathEscape(messageID)+"/"+what, reasoned{reason}), semel.CodeUnknown)
}

// onRecord is an operator's request. A repeated one would find the record as the
// first has left it, and be refused.
func (c *Client) onRecord(id semel.ID, what string, body any) *request {
	return &request{method: http.MethodPost, url: c.admin + recordPath(id) + what, body: body}
}
