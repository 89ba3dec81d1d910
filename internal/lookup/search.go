package lookup

import (
	"context"

	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// A Searcher searches records: an engine, or a client of a service.
type Searcher interface {
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
}

// A Lister searches records, and judges them.
type Lister interface {
	// Judged is [Searcher.Search], with the verdicts on the records, in their order. One is nil where
	// nobody could judge.
	Judged(ctx context.Context, q store.Query) (store.Page, []*verdict.Verdict, error)
}

// unjudged is a lister without verdicts.
type unjudged struct{ Searcher }

func (s unjudged) Judged(ctx context.Context, q store.Query) (store.Page, []*verdict.Verdict, error) {
	page, err := s.Search(ctx, q)
	return page, make([]*verdict.Verdict, len(page.Records)), err
}

// Judging is a searcher as a lister: with its own verdicts, or without any.
func Judging(recs Searcher) Lister {
	if l, ok := recs.(Lister); ok {
		return l
	}
	return unjudged{recs}
}

// Each calls f with each record that a search finds, up to limit; zero means no limit. next
// continues from there, even after an error. warn gets an error for each unreadable record.
func Each(ctx context.Context, recs Searcher, q store.Query, limit int, warn func(error), f func(*store.Record) error) (next string, err error) {
	return EachJudged(ctx, unjudged{recs}, q, limit, warn, func(rec *store.Record, _ *verdict.Verdict) error { return f(rec) })
}

// EachJudged is [Each] with verdicts.
func EachJudged(ctx context.Context, recs Lister, q store.Query, limit int, warn func(error), f func(*store.Record, *verdict.Verdict) error) (next string, err error) {
	for left := limit; ; {
		q.Limit = store.MaxSearchLimit
		if limit > 0 {
			q.Limit = min(left, q.Limit)
		}
		page, verdicts, err := recs.Judged(ctx, q)
		if err != nil {
			return q.Cursor, err
		}
		for _, err := range page.Unreadable {
			warn(err)
		}
		for i := range page.Records {
			if err := f(&page.Records[i], verdicts[i]); err != nil {
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
