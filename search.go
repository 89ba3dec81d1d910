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
// may have fewer than asked for although there is a next one. [CodeUnsupported] means that
// the store can't.
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
	call, cancel := e.limited(ctx)
	defer cancel()
	page, err := ss.Search(call, q)
	switch {
	case errors.Is(err, &Error{Code: CodeInvalidCall}):
		return store.Page{}, err
	case err != nil:
		return store.Page{}, e.storeError("search", ID{}, err)
	}
	if !strings.HasPrefix(q.Operation, reservedPrefix) {
		page.Records = slices.DeleteFunc(page.Records, func(rec Record) bool { return strings.HasPrefix(rec.ID.Operation, reservedPrefix) })
	}
	return page, nil
}
