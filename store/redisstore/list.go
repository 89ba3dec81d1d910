package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/terms"
	"github.com/semelhq/semel/store"
)

const (
	// maxCorrections is how often one call of Due corrects the index and reads it again.
	maxCorrections = 64
	// maxSearch is about how many records one call of Search reads.
	maxSearch = 5000
)

// Due is [store.DueIndex.Due]. Its order is that of the index: by microseconds, then by
// digest. A page takes three round trips to each server, and two more each time it meets
// entries that are too early. Most entries are too early once: a call usually ends before its
// lease does, and its entry stays at the end of the lease until somebody reads it there. Due
// moves such entries before it reads past them, so each record is on the page where it
// belongs.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err := s.enter(); err != nil {
		return page, err
	}
	defer s.leave()
	last, err := parseCursor(q.After)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	looks, more, err := s.lookDue(ctx, q, last)
	if err != nil {
		return page, s.failed("due", err)
	}
	for _, l := range looks {
		last = l.entry
		switch {
		case l.bad != nil:
			page.Unreadable = append(page.Unreadable, l.bad)
		case l.rec != nil && l.rec.NextAt != 0 && l.rec.NextAt <= q.Until:
			page.Records = append(page.Records, *l.rec)
		}
	}
	if more {
		page.Next = last.cursor()
	}
	return page, nil
}

// lookDue reads the records that are due after last. If entries are too early even after
// maxCorrections, it returns nothing and says that there is more.
func (s *Store) lookDue(ctx context.Context, q store.DueQuery, last *entry) ([]look, bool, error) {
	for range maxCorrections {
		found, beyond, more, err := s.entries(ctx, byDue(q.Until), last, q.Limit)
		if err != nil {
			return nil, false, err
		}
		changed, err := s.correct(ctx, slices.Concat(found, beyond))
		if err != nil {
			return nil, false, err
		}
		if changed == 0 {
			budget := paging.New(ctx)
			return s.read(ctx, found, more, q.Limit, &budget)
		}
	}
	return nil, true, nil
}

// Search is [store.Searcher.Search]. It reads records from the newest to the oldest, a few
// thousand in one call at most, and matches each against the query. The order is by the time
// of creation, which never changes: by microseconds, then by digest. A search for an attribute, or
// either of several, reads only records that have one, once the store has format 2.
func (s *Store) Search(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.enter(); err != nil {
		return page, err
	}
	defer s.leave()
	last, err := parseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	atATime := max(limit, store.DefaultSearchLimit) // few of them may match
	ix, budget := byCreation, paging.New(ctx)
	if list, ok := terms.For(&q); ok {
		if whole, err := s.hasIndex(ctx); err != nil {
			return page, s.failed("search", err)
		} else if whole {
			ix = byAttributes(list)
		}
	}
	for looked, more := 0, true; more && looked < maxSearch && len(page.Records) < limit && !budget.Spent; {
		var looks []look
		found, _, others, err := s.entries(ctx, ix, last, atATime)
		if err == nil {
			looks, more, err = s.read(ctx, found, others, atATime, &budget)
		}
		if err != nil {
			return store.Page{}, s.failed("search", err)
		}
		var gone []entry
		for _, l := range looks {
			if len(page.Records) == limit {
				more = true
				break
			}
			last = l.entry
			looked++
			switch {
			case l.bad != nil:
				page.Unreadable = append(page.Unreadable, l.bad)
			case l.rec == nil:
				gone = append(gone, *l.entry)
			case q.Matches(l.rec):
				page.Records = append(page.Records, *l.rec)
			}
		}
		// If a crash or an error leaves entries behind, a later search removes them.
		if ix.terms != nil {
			_ = s.forget(ctx, gone)
		} else {
			_, _ = s.correct(ctx, gone)
		}
		if page.Next = ""; more {
			page.Next = last.cursor()
		}
	}
	return page, nil
}

// Purge is [store.Purger.Purge]. It runs a script for each record, all of them pipelined.
//
// Each run is atomic. A crash in between leaves the other records with their index entries,
// so they are due again.
func (s *Store) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	var runs []run
	for i := range refs {
		if !refs[i].Revision.IsZero() {
			sh, key := s.keys.find(refs[i].ID)
			r := run{[]string{key, sh.due, sh.created}, []string{string(refs[i].Revision[:])}}
			if list := terms.Of(refs[i].Attributes); list != nil {
				r.keys, r.args = append(r.keys, sh.attributes), append(r.args, joined(list))
			}
			runs = append(runs, r)
		}
	}
	n, err := s.evalAll(ctx, scriptPurge, runs)
	if err != nil {
		return n, s.failed("purge", err)
	}
	return n, nil
}
