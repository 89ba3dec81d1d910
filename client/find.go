package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Named is a call that has a text as one of its names, with the names that matched, as in GET
// /v1/lookup, and the service's verdict on it; nil if it gives none.
type Named struct {
	Record  semel.Record
	By      []string
	Verdict *verdict.Verdict
}

// NamedPage is a page of results of [Client.Find]. Gone are calls that only the evidence log
// knows: their records were purged or have expired. Verdict answers for all calls of the page
// in one sentence.
type NamedPage struct {
	Found   []Named
	Gone    []semel.ID
	Verdict string
	// Searched has the kinds of names that the page has searched to the end. Records is how many
	// records it compared by every name, from the newest on, and BackTo is when the oldest of them
	// was created.
	Searched []string
	Records  int
	BackTo   store.Instant
	// Complete reports whether this page and the earlier ones have searched everything.
	Complete bool
	// Next continues the search; empty at its end.
	Next string
}

// Find finds calls by any name that somebody has for them: a key, a reference, a delivery's id,
// an order number. A page may be empty before the end: until one is complete, a missing call
// may still exist. cursor is the previous page's Next, or empty. Find needs the role viewer and
// the admin listener.
func (c *Client) Find(ctx context.Context, name, cursor string) (*NamedPage, error) {
	params := url.Values{"q": {name}}
	if cursor != "" {
		params.Set("cursor", cursor)
	}
	v, r, err := call[wire.Lookup](ctx, c, reading(c.records, "/v1/lookup?"+params.Encode()))
	if e, ok := errors.AsType[*semel.Error](err); ok && e.Code == semel.CodeNotFound {
		// A search that finds nothing is a page without calls.
		return nil, &AnswerError{Status: http.StatusNotFound, Reason: "this listener can't look up calls"}
	}
	if err != nil {
		return nil, err
	}
	page := &NamedPage{Verdict: v.Verdict, Searched: v.Searched.By, Records: v.Searched.Records, BackTo: v.Searched.BackTo, Complete: v.Complete, Next: v.Next}
	for i := range v.Found {
		rec, err := v.Found[i].Record.Value()
		if err != nil {
			return nil, r.invalid(err.Error())
		}
		page.Found = append(page.Found, Named{*rec, v.Found[i].By, v.Found[i].Record.Verdict})
	}
	for i := range v.Gone {
		id, err := store.DecodeID(v.Gone[i].Record)
		if err != nil {
			return nil, r.invalid(err.Error())
		}
		page.Gone = append(page.Gone, id)
	}
	return page, nil
}
