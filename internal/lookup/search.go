package lookup

import (
	"context"

	"github.com/semelhq/semel/store"
)

// A Searcher searches records: an engine, or a client of a service.
type Searcher interface {
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
}

// Each calls f with each record that a search finds, up to limit; zero means no limit. next
// continues from there, even after an error. warn gets an error for each unreadable record.
func Each(ctx context.Context, recs Searcher, q store.Query, limit int, warn func(error), f func(*store.Record) error) (next string, err error) {
	for left := limit; ; {
		q.Limit = store.MaxSearchLimit
		if limit > 0 {
			q.Limit = min(left, q.Limit)
		}
		page, err := recs.Search(ctx, q)
		if err != nil {
			return q.Cursor, err
		}
		for _, err := range page.Unreadable {
			warn(err)
		}
		for i := range page.Records {
			if err := f(&page.Records[i]); err != nil {
				return "", err
			}
		}
		left -= len(page.Records)
		if q.Cursor = page.Next; q.Cursor == "" || limit > 0 && left <= 0 {
			return q.Cursor, nil
		}
	}
}

// Some returns the newest records that a query selects, up to most, and reports whether there
// may be others.
func Some(ctx context.Context, recs Searcher, q store.Query, most int) (found []store.Record, more bool, err error) {
	next, err := Each(ctx, recs, q, most, func(error) {}, func(rec *store.Record) error {
		found = append(found, *rec)
		return nil
	})
	return found, next != "", err
}
