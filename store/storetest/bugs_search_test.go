package storetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// everything lists all records that a query selects, the newest first.
func everything(ctx context.Context, m *memstore.Store, q store.Query) ([]semel.Record, error) {
	q.Cursor, q.Limit = "", store.MaxSearchLimit
	var all []semel.Record
	for {
		page, err := m.Search(ctx, q)
		all = append(all, page.Records...)
		if q.Cursor = page.Next; err != nil || q.Cursor == "" {
			return all, err
		}
	}
}

// byOffset pages through a list by counting, and calls order on it first.
func byOffset(m *memstore.Store, order func([]semel.Record)) func(ctx context.Context, q store.Query) (store.Page, error) {
	return func(ctx context.Context, q store.Query) (store.Page, error) {
		at := 0
		if q.Cursor != "" {
			n, err := strconv.Atoi(q.Cursor)
			if err != nil || n <= 0 {
				return store.Page{}, &semel.Error{Code: semel.CodeInvalidCall}
			}
			at = n
		}
		all, err := everything(ctx, m, q)
		order(all)
		all = all[min(at, len(all)):]
		page := store.Page{Records: all[:min(len(all), q.Limit)]}
		if len(all) > q.Limit {
			page.Next = strconv.Itoa(at + q.Limit)
		}
		return page, err
	}
}

// changedQuery plants a change of what is asked.
func changedQuery(change func(q *store.Query)) func(p *planted, m *memstore.Store) {
	return func(p *planted, m *memstore.Store) {
		p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
			change(&q)
			return m.Search(ctx, q)
		}
	}
}

// changedPage plants a change of what is answered.
func changedPage(change func(q store.Query, page *store.Page)) func(p *planted, m *memstore.Store) {
	return func(p *planted, m *memstore.Store) {
		p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
			page, err := m.Search(ctx, q)
			change(q, &page)
			return page, err
		}
	}
}

// searchBugs are bugs of Search.
var searchBugs = []plantedBug{
	{
		"lists the oldest first",
		func(p *planted, m *memstore.Store) { p.find = byOffset(m, slices.Reverse[[]semel.Record]) },
		[]string{"Search lists whole records", "pages of any size", "Search follows every change"},
	},
	{
		"pages by counting, so that records which come or go move the others",
		func(p *planted, m *memstore.Store) { p.find = byOffset(m, func([]semel.Record) {}) },
		[]string{"a search lists what exists throughout"},
	},
	{
		"orders by a time that changes, so that records jump between pages",
		func(p *planted, m *memstore.Store) {
			p.find = byOffset(m, func(recs []semel.Record) {
				slices.SortStableFunc(recs, func(a, b semel.Record) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
			})
		},
		[]string{"a search lists what exists throughout"},
	},
	{
		"takes the empty tenant for every tenant",
		changedQuery(func(q *store.Query) {
			if q.Tenant != nil && *q.Tenant == "" {
				q.Tenant = nil
			}
		}),
		[]string{"every member of a query"},
	},
	{
		"takes no tenant for the empty one",
		changedQuery(func(q *store.Query) { q.Tenant = cmp.Or(q.Tenant, new("")) }),
		[]string{"every member of a query"},
	},
	{
		"lists records that are not held",
		changedQuery(func(q *store.Query) { q.Held = false }),
		[]string{"every member of a query"},
	},
	{
		"forgets the principal",
		changedQuery(func(q *store.Query) { q.Principal = "" }),
		[]string{"every member of a query"},
	},
	{
		"lists what was created at the very end",
		changedQuery(func(q *store.Query) {
			if q.Before != 0 {
				q.Before++
			}
		}),
		[]string{"every member of a query"},
	},
	{
		"leaves out what was created at the very beginning",
		changedQuery(func(q *store.Query) {
			if q.After != 0 {
				q.After++
			}
		}),
		[]string{"every member of a query", "pages of any size"},
	},
	{
		"lists one record more than it may",
		changedQuery(func(q *store.Query) { q.Limit++ }),
		[]string{"every member of a query", "pages of any size"},
	},
	{
		"loses a record between pages",
		changedPage(func(_ store.Query, page *store.Page) {
			if page.Next != "" {
				page.Records = page.Records[:len(page.Records)-1]
			}
		}),
		[]string{"every member of a query", "pages of any size", "a search lists what exists throughout"},
	},
	{
		"says at the first page that there is no more",
		changedPage(func(_ store.Query, page *store.Page) { page.Next = "" }),
		[]string{"pages of any size", "a search lists what exists throughout"},
	},
	{
		"lists without their results",
		changedPage(func(_ store.Query, page *store.Page) {
			for i := range page.Records {
				page.Records[i].Result = semel.Result{}
			}
		}),
		[]string{"Search lists whole records"},
	},
	{
		"hides what has expired",
		func(p *planted, m *memstore.Store) {
			p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
				page, err := m.Search(ctx, q)
				now, _ := m.Now(ctx)
				page.Records = slices.DeleteFunc(page.Records, func(r semel.Record) bool { return r.Expired(now) })
				return page, err
			}
		},
		[]string{"Search follows every change"},
	},
	{
		"begins anew at a cursor that it does not know",
		func(p *planted, m *memstore.Store) {
			p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
				page, err := m.Search(ctx, q)
				if errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
					q.Cursor = ""
					return m.Search(ctx, q)
				}
				return page, err
			}
		},
		[]string{"a cursor that the store did not make"},
	},
}

// attributeBugs are bugs of an index of attributes, and of pages.
var attributeBugs = []plantedBug{
	{
		"finds a record by the attributes that it had first",
		func(p *planted, m *memstore.Store) {
			var first sync.Map
			p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
				page, err := m.Search(ctx, q)
				page.Records = slices.DeleteFunc(page.Records, func(rec semel.Record) bool {
					was, _ := first.LoadOrStore(rec.ID, rec.Attributes)
					return len(q.Attributes) > 0 && !maps.Equal(was.(store.Attributes), rec.Attributes)
				})
				return page, err
			}
		},
		[]string{"a search for attributes"},
	},
	{
		"takes either of several attributes for the first",
		changedQuery(func(q *store.Query) {
			if len(q.Any) > 0 && len(q.Any[0]) > 1 && len(q.Any[0][0].Attributes) > 0 {
				q.Any = [][]store.Query{q.Any[0][:1]}
			}
		}),
		[]string{"a search for attributes"},
	},
	{
		"has no bound for the bytes of a page",
		func(p *planted, m *memstore.Store) {
			p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
				return m.Search(paging.With(ctx, 1<<40, time.Hour), q)
			}
		},
		[]string{"pages of large records"},
	},
}

// TestShortPagesPass runs the cases on a store that looks at two records in each
// call, so that its pages are short and often empty, as the contract allows.
func TestShortPagesPass(t *testing.T) {
	for _, c := range searchCases {
		t.Run(c.name, func(t *testing.T) {
			Virtual("short pages", func(t *testing.T) Env {
				m := memstore.New()
				t.Cleanup(func() { _ = m.Close() })
				p := sound(m)
				p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
					page, err := m.Search(ctx, store.Query{Cursor: q.Cursor, Limit: min(2, q.Limit)})
					page.Records = slices.DeleteFunc(page.Records, func(r semel.Record) bool { return !q.Matches(&r) })
					return page, err
				}
				return Env{Store: p}
			}).Run(t, c.run)
		})
	}
}
