package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/verdict/facts"
)

const maxNamesakes = 10 // calls with one name that are listed

// pagesOf looks a name up where the records are: in a service, or here.
func pagesOf(recs tally.Reader, text string) lookup.Pages {
	f := &lookup.Finder{Records: recs}
	switch r := recs.(type) {
	case *client.Client:
		if q, ok := lookup.Name(text); ok && q.Tenant != nil {
			break // callers without a role may look at their own record, but not search
		}
		return func(ctx context.Context, text, cursor string) (*lookup.Answer, error) {
			page, err := r.Find(ctx, text, cursor)
			if err != nil {
				return nil, err
			}
			a := &lookup.Answer{Gone: page.Gone, Verdict: page.Verdict, Searched: lookup.Searched{By: page.Searched, Records: page.Records, BackTo: page.BackTo}, Complete: page.Complete, Next: page.Next}
			for _, found := range page.Found {
				a.Found = append(a.Found, lookup.Found(found))
			}
			return a, nil
		}
	case *localRecords:
		f.Attributes, f.Log = r.attributes, r.log
		return func(ctx context.Context, text, cursor string) (*lookup.Answer, error) {
			f.Facts = func(records []semel.Record) []verdict.Facts {
				all, _ := facts.Whole(ctx, r.Engine, r.log, records) // without them it judges by the records
				return all
			}
			return f.Find(ctx, text, cursor)
		}
	}
	return f.Find
}

// find finds the calls with a name, newest first, or says that there is none. With look, which is
// for commands that change nothing, the name may be the value of an attribute.
func find(ctx context.Context, recs tally.Reader, text string, look bool) (*lookup.Answer, error) {
	all, err := pagesOf(recs, text).All(ctx, text, !look, maxNamesakes)
	switch {
	case err != nil || len(all.Found) > 0:
		return all, err
	case len(all.Guessed) > 0:
		return nil, usage("%s is no name of a call, but the value of an attribute, and what changes a call takes no guess: write %s", printable(text), printable(strings.Join(all.Guessed, " or ")))
	case len(all.Gone) > 0:
		id := &all.Gone[0]
		return nil, notFound("the record of %s, key %s, is gone: it was purged or has expired; 'semel evidence show %s' has its history", printable(id.Operation), printable(id.Key), shellWord(text))
	case !all.Complete:
		return nil, fmt.Errorf("no call with the name %s was found, but some of the store or of the evidence log couldn't be read", printable(text))
	}
	return nil, notFound("no call has the name %s%s. Check the spelling, or look through 'semel records list'; if there is an evidence log, 'semel evidence show' knows the ids of old duplicates", printable(text), all.Through())
}
