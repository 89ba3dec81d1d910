package semel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/semelhq/semel/store"
)

// Search lists records, for people. Those that the engine and its doors keep for themselves,
// whose operations begin with "semel.", are listed only if q names their operation, so a page
// may have fewer than asked for although there is a next one. The key of a sequence selects its
// numbers. [CodeUnsupported] means that the store can't.
func (e *Engine) Search(ctx context.Context, q store.Query) (store.Page, error) {
	ss := e.extras.Search
	if ss == nil {
		return store.Page{}, &Error{Code: CodeUnsupported, Message: "the store can't list its records"}
	}
	if q.Limit < 0 || q.Limit > store.MaxSearchLimit {
		return store.Page{}, &Error{Code: CodeInvalidCall, Message: "the limit of a page is 1 to 1000"}
	}
	if q.Limit == 0 {
		q.Limit = store.DefaultSearchLimit
	}
	q, numbers := withNumbers(q)
	call, cancel := e.limited(ctx)
	defer cancel()
	page, err := ss.Search(call, q)
	if numbers && page.Next != "" {
		page.Next = inNumbers + page.Next
	}
	switch {
	case errors.Is(err, &Error{Code: CodeInvalidCall}):
		return store.Page{}, err
	case err != nil:
		return store.Page{}, e.storeError("search", ID{}, err)
	}
	mark := slices.ContainsFunc(page.Records, func(rec Record) bool { return rec.Mark != nil })
	page.Records = slices.DeleteFunc(page.Records, func(rec Record) bool {
		return rec.Mark != nil || strings.HasPrefix(rec.ID.Operation, reservedPrefix) && !strings.HasPrefix(q.Operation, reservedPrefix)
	})
	if mark && q.Key != "" && page.Next == "" {
		page.Next = inNumbers // of the sequence that the key names
	}
	return page, nil
}

// inNumbers begins the cursor of a search for the numbers of a sequence by its key.
const inNumbers = "numbers:"

// withNumbers is a query that goes on with the numbers of the sequence that its key names, or q.
func withNumbers(q store.Query) (_ store.Query, numbers bool) {
	rest, numbers := strings.CutPrefix(q.Cursor, inNumbers)
	if numbers && q.Key != "" {
		q.Key, q.KeyPrefix, q.Cursor = "", q.Key+store.ScopeMark, rest
		return q, true
	}
	return q, false
}
