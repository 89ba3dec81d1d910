package client

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Lookup is [semel.Engine.Lookup]. It doesn't find another caller's record, unless the client
// has a role and uses the admin listener.
func (c *Client) Lookup(ctx context.Context, id semel.ID) (semel.Record, error) {
	return c.one(ctx, id, reading(c.calls, recordPath(id)))
}

// Decisions counts the decisions about a call's deliveries since its record was made, on all
// nodes, a few seconds late. You need the same access as for [Client.Lookup].
func (c *Client) Decisions(ctx context.Context, id semel.ID) (map[semel.Decision]int, error) {
	v, err := c.Shown(ctx, id)
	return v.Decisions, err
}

// Shown returns a record as the service shows it: with the decisions about its deliveries, and
// with the service's verdict. You need the same access as for [Client.Lookup].
func (c *Client) Shown(ctx context.Context, id semel.ID) (wire.Record, error) {
	v, _, err := call[wire.RecordBody](ctx, c, reading(c.calls, recordPath(id)))
	if err != nil {
		return wire.Record{}, err
	}
	return v.Record, nil
}

func recordPath(id semel.ID) string { return "/v1/records/" + id.Encode() }

// reading returns a request that changes nothing.
func reading(from *peer.Listener, path string) *request {
	return &request{method: http.MethodGet, to: from, path: path, repeatable: true, lost: semel.CodeStoreUnavailable}
}

// one sends a request that gets a record as its answer.
func (c *Client) one(ctx context.Context, id semel.ID, q *request) (semel.Record, error) {
	r, err := c.ask(ctx, q)
	if err != nil {
		return semel.Record{}, err
	}
	rec, err := recordIn(r)
	if err != nil {
		return semel.Record{}, err
	}
	if rec.ID != id {
		return semel.Record{}, r.invalid("it is about another record")
	}
	return *rec, nil
}

// Search is [semel.Engine.Search]. It needs the role viewer and the admin listener. It
// finds records of the caller's tenant; an admin without a tenant finds all.
func (c *Client) Search(ctx context.Context, q store.Query) (store.Page, error) {
	page, _, err := c.Judged(ctx, q)
	return page, err
}

// Judged is [Client.Search], with the service's verdict on each record, in their order. One is nil
// where the service gives none.
func (c *Client) Judged(ctx context.Context, q store.Query) (found store.Page, verdicts []*verdict.Verdict, err error) {
	if q.Limit < 0 || q.Limit > store.MaxSearchLimit {
		return found, nil, &semel.Error{Code: semel.CodeInvalidCall, Message: "the limit of a page is 1 to 1000"}
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
	v, r, err := call[wire.Page](ctx, c, reading(c.records, "/v1/records?"+params.Encode()))
	if e, ok := errors.AsType[*semel.Error](err); ok && e.Code == semel.CodeNotFound {
		// A search that finds nothing is a page without records.
		return found, nil, &AnswerError{Status: http.StatusNotFound, Reason: "this listener has no list of records"}
	}
	if err != nil {
		return found, nil, err
	}
	found.Next = v.Next
	for _, text := range v.Unreadable {
		found.Unreadable = append(found.Unreadable, errors.New(text))
	}
	for i := range v.Records {
		rec, err := v.Records[i].Value()
		if err != nil {
			return store.Page{}, nil, r.invalid(err.Error())
		}
		found.Records, verdicts = append(found.Records, *rec), append(verdicts, v.Records[i].Verdict)
	}
	return found, verdicts, nil
}

// queryWords writes the query in the API's search language.
func queryWords(q *store.Query) string {
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
	word("principal_prefix", q.PrincipalPrefix)
	word("operation", q.Operation)
	word("operation_prefix", q.OperationPrefix)
	word("key", q.Key)
	word("key_prefix", q.KeyPrefix)
	word("digest", q.Digest)
	word("fingerprint", q.Fingerprint.String())
	for _, name := range slices.Sorted(maps.Keys(q.Attributes)) {
		word("attribute", name+"="+q.Attributes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(q.AttributePrefixes)) {
		word("attribute_prefix", name+"="+q.AttributePrefixes[name])
	}
	word("state", q.State.String())
	word("disposition", q.Disposition.String())
	word("after", q.After.String())
	word("before", q.Before.String())
	if q.Held {
		words = append(words, "held")
	}
	if q.Unverified {
		words = append(words, "unverified")
	}
	for _, list := range q.Any {
		either := make([]string, 0, len(list))
		for i := range list {
			either = append(either, "("+queryWords(&list[i])+")")
		}
		if text := strings.Join(either, " OR "); len(list) == 1 {
			words = append(words, text)
		} else {
			words = append(words, "("+text+")")
		}
	}
	for i := range q.Not {
		words = append(words, "-("+queryWords(&q.Not[i])+")")
	}
	return strings.Join(words, " ")
}

// Settle is [semel.Engine.Settle]. It needs the role operator and the admin listener. The
// outcome abandoned is [Client.Release]; the API has no RetryAfter, and no messages for that
// outcome.
//
// Unlike a holder's calls, it isn't repeated if its answer was lost: the error then has
// [semel.CodeUnknown], and Lookup shows what happened.
func (c *Client) Settle(ctx context.Context, id semel.ID, s semel.Settlement, reason string) (semel.Record, error) {
	if s.RetryAfter != 0 {
		return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API doesn't take a RetryAfter"}
	}
	if s.Outcome == semel.DispositionAbandoned {
		if len(s.Effects) > 0 || !s.Result.IsZero() || s.Failure != nil {
			return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API can't settle effects and release a record at once: settle the effects first"}
		}
		return c.one(ctx, id, c.onRecord(id, "/release", wire.Forced{Seen: wire.Seen{Reason: cut(reason), Fence: s.Fence}, Force: s.Force}))
	}
	if s.Result.Tombstone {
		return semel.Record{}, errTombstone()
	}
	body := &wire.Settling{Outcome: s.Outcome, Result: sentResult(s.Result), Error: sentFailure(s.Failure), Messages: sentMessages(s.Messages), Seen: wire.Seen{Reason: cut(reason), Fence: s.Fence}, Force: s.Force}
	for i := range s.Effects {
		body.Effects = append(body.Effects, sentFinding(&s.Effects[i]))
	}
	return c.one(ctx, id, c.onRecord(id, "/settle", body))
}

// Release lets the next delivery run a held record again, although nobody knows what
// happened. Otherwise it is like Settle.
func (c *Client) Release(ctx context.Context, id semel.ID, reason string) (semel.Record, error) {
	return c.Settle(ctx, id, semel.Settlement{Outcome: semel.DispositionAbandoned}, reason)
}

// Confirm is [semel.Engine.Confirm]. The service knows who asks, whatever who says. Otherwise it is
// like Settle.
func (c *Client) Confirm(ctx context.Context, id semel.ID, fence int64, _, reason string) (semel.Record, error) {
	return c.one(ctx, id, c.onRecord(id, "/confirm", wire.Seen{Reason: cut(reason), Fence: fence}))
}

// Purge is [semel.Engine.Purge]. Otherwise it is like Settle.
func (c *Client) Purge(ctx context.Context, id semel.ID, why semel.Removal) error {
	_, err := c.ask(ctx, c.onRecord(id, "/purge", wire.Purging{Seen: wire.Seen{Reason: cut(why.Reason), Fence: why.Fence}, Force: why.Force, EraseEvidence: why.EraseEvidence}))
	return err
}

// Compensate undoes a completed call by the operation that its own operation names, in the
// caller's name; see [semel.Engine.Compensate]. The error is the compensating call's. Otherwise
// it is like Settle, but you may repeat it.
func (c *Client) Compensate(ctx context.Context, id semel.ID, reason string) (semel.Record, error) {
	return c.one(ctx, id, c.onRecord(id, "/compensate", wire.Reasoned{Reason: cut(reason)}))
}

// SettleMessage is [semel.Internal.SettleMessage] for an operator's decisions about a parked
// message: replay it, or discard it. The API keeps the message of f.Failure as the
// reason, with a code of its own. Everything else is for dispatchers, and is refused with
// [semel.CodeUnsupported]. Otherwise it is like Settle.
func (c *Client) SettleMessage(ctx context.Context, id semel.ID, messageID string, f store.MessageFinding) (semel.Record, error) {
	var what string
	switch {
	case f.RetryAfter != 0 || f.Untried:
	case f.State == store.MessagePending && f.Replay:
		what = "replay"
	case f.State == store.MessageDiscarded && !f.Replay:
		what = "discard"
	}
	if what == "" {
		return semel.Record{}, &semel.Error{Code: semel.CodeUnsupported, Message: "the API can only replay or discard a message"}
	}
	reason := "not given"
	if f.Failure != nil && f.Failure.Message != "" {
		reason = cut(f.Failure.Message)
	}
	return c.one(ctx, id, c.onRecord(id, "/messages/"+url.PathEscape(messageID)+"/"+what, wire.Reasoned{Reason: reason}))
}

// onRecord returns an operator's request. It isn't repeated: it would find the record as the
// first one left it, and be refused.
func (c *Client) onRecord(id semel.ID, what string, body any) *request {
	return &request{method: http.MethodPost, to: c.records, path: recordPath(id) + what, body: body, lost: semel.CodeUnknown}
}
