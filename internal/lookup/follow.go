package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// Pages makes the pages of a search, like [Finder.Find], here or in a service.
type Pages func(ctx context.Context, text, cursor string) (*Answer, error)

// All follows the pages until it finds calls, or to the last page. With sure, for callers who
// change something, it leaves out calls that have the text only as an attribute's value, and
// continues until no index can have another one, or it has more than enough.
func (p Pages) All(ctx context.Context, text string, sure bool, enough int) (*Answer, error) {
	all := &Answer{}
	for more := true; more; {
		page, err := p(ctx, text, all.Next)
		if err != nil {
			return nil, err
		}
		for _, found := range page.Found {
			known := slices.ContainsFunc(all.Found, func(f Found) bool { return f.Record.ID == found.Record.ID })
			switch {
			case known:
			case !sure || Sure(found.By):
				all.Found = append(all.Found, found)
			default:
				all.guess(text, found.By)
			}
		}
		all.Gone, all.By = append(all.Gone, page.Gone...), append(all.By, page.By...)
		if all.Records += page.Records; page.Records > 0 {
			all.BackTo = page.BackTo
		}
		all.Next, all.Complete, all.Verdict = page.Next, page.Complete, page.Verdict
		indexed := slices.Contains(all.By, named[attributes]) && slices.Contains(all.By, named[keys])
		more = all.Next != "" && (len(all.Found) == 0 || sure && !indexed && len(all.Found) <= enough)
	}
	return all, nil
}

// guess notes as which attributes a call has the text for a value.
func (a *Answer) guess(text string, by []string) {
	for _, name := range by {
		if name = strings.TrimPrefix(name, byValue) + "=" + text; !slices.Contains(a.Guessed, name) {
			a.Guessed = append(a.Guessed, name)
		}
	}
}

// Newest returns the records of the newest calls, up to most, and reports whether there may be
// others.
func (a *Answer) Newest(most int) (recs []store.Record, more bool) {
	for i := range a.Found[:min(len(a.Found), most)] {
		recs = append(recs, a.Found[i].Record)
	}
	return recs, !a.Complete || len(recs) < len(a.Found)
}

// Newest returns the records of the newest calls with text as a name, up to most, and reports
// whether there may be others.
func (p Pages) Newest(ctx context.Context, text string, most int) (recs []store.Record, more bool, err error) {
	all, err := p.All(ctx, text, false, most)
	if err != nil {
		return nil, false, err
	}
	recs, more = all.Newest(most)
	return recs, more, nil
}

// Through says how many records the search has gone through, as the end of a sentence; empty if none.
func (a *Answer) Through() string {
	if a.Records == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d records searched)", a.Records)
}

// List returns a lister of the calls with a text as a name: it finds each once, and ignores the
// query.
func (p Pages) List(text string) Lister { return &list{p, text, map[store.ID]bool{}} }

type list struct {
	pages Pages
	text  string
	seen  map[store.ID]bool
}

// Judged implements [Lister].
func (l *list) Judged(ctx context.Context, q store.Query) (page store.Page, verdicts []*verdict.Verdict, err error) {
	a, err := l.pages(ctx, l.text, q.Cursor)
	if err != nil {
		return page, nil, err
	}
	for i := range a.Found {
		if rec := &a.Found[i].Record; !l.seen[rec.ID] {
			l.seen[rec.ID] = true
			page.Records, verdicts = append(page.Records, *rec), append(verdicts, a.Found[i].Verdict)
		}
	}
	if page.Next = a.Next; page.Next == "" && !a.Complete {
		page.Unreadable = []error{errors.New("some of the store or of the evidence log couldn't be read")}
	}
	return page, verdicts, nil
}
