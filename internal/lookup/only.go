package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// The lists that [Only] makes.
const (
	Stuck    = "stuck"    // what waits for somebody: held, silent, with a parked message, or not undone
	Repeated = "repeated" // what was or may have been done more than once, under one key or under several
	Restored = "restored" // what ran since the store was restored from a backup
)

// Lists are the words for [Only].List.
var Lists = []string{Stuck, Repeated, Restored}

// Only is a lister of some of the calls that another one finds, by what no store has an index of. So it
// goes through all of them.
type Only struct {
	Lister
	// List is one of [Lists], or empty.
	List string
	// Node keeps calls with an attempt that this node began; empty: of all. Name it as holders do, such
	// as shop-7 for the process 7 of the host shop, or by the host alone.
	Node string

	// first has the newest call with each payload, until it is listed with another one.
	first map[payload]*candidate
}

// payload identifies equal requests to one operation of a tenant.
type payload struct {
	tenant, operation string
	fingerprint       store.Fingerprint
}

type candidate struct {
	rec     store.Record
	verdict *verdict.Verdict
	listed  bool
}

// errNeverRestored refuses to list nothing as if nothing had run.
var errNeverRestored = errors.New("nobody has recorded a restore of this store: 'semel store new-epoch' records one, before nodes start on it")

// Judged implements [Lister]. A page may have fewer calls than the query's limit, and repeated ones
// of earlier pages.
func (o *Only) Judged(ctx context.Context, q store.Query) (store.Page, []*verdict.Verdict, error) {
	page, verdicts, err := o.Lister.Judged(ctx, q)
	found := page.Records
	page.Records = nil
	var kept []*verdict.Verdict
	for i := range found {
		c := &candidate{rec: found[i], verdict: verdicts[i]}
		if c.verdict == nil {
			c.verdict = new(verdict.Of(&verdict.Facts{Record: &c.rec, Now: store.InstantOf(time.Now())}))
		}
		if o.List == Restored && c.verdict.RestoredAt == 0 {
			return page, nil, errNeverRestored
		}
		if !o.of(&c.rec) {
			continue
		}
		for _, c := range o.listed(c) {
			page.Records, kept = append(page.Records, c.rec), append(kept, c.verdict)
		}
	}
	return page, kept, err
}

// of reports whether the node began an attempt of the call.
func (o *Only) of(rec *store.Record) bool {
	is := func(holder string) bool {
		rest, ok := strings.CutPrefix(holder, o.Node)
		return ok && (rest == "" || rest[0] == '-' || rest[0] == '/')
	}
	return o.Node == "" || is(rec.Holder) || slices.ContainsFunc(rec.Earlier, func(at store.AttemptRecord) bool { return is(at.Holder) })
}

// listed are the calls that the list has because of this one.
func (o *Only) listed(c *candidate) []*candidate {
	v := c.verdict
	switch o.List {
	case Stuck:
		c.listed = slices.Contains([]verdict.State{verdict.Held, verdict.Silent, verdict.Parked, verdict.UndoFailed}, v.State) || slices.Contains(v.Advice, verdict.ReplayMessage)
	case Restored:
		c.listed = c.rec.StartedAt >= v.RestoredAt
	case Repeated:
		return o.repeated(c)
	default:
		c.listed = true
	}
	if !c.listed {
		return nil
	}
	return []*candidate{c}
}

// repeated lists a call that may have been done more than once, and one with the payload of an earlier
// one, and that one before it.
func (o *Only) repeated(c *candidate) (all []*candidate) {
	if c.verdict.AtMost() == 0 {
		return nil
	}
	if c.listed = c.verdict.AtMost() > 1; c.listed {
		all = append(all, c)
	}
	if c.rec.Fingerprint.IsZero() {
		return all
	}
	of := payload{c.rec.ID.Tenant, c.rec.ID.Operation, c.rec.Fingerprint}
	first := o.first[of]
	switch {
	case first == nil && o.first == nil:
		o.first = map[payload]*candidate{of: c}
		return all
	case first == nil:
		o.first[of] = c
		return all
	}
	if !c.listed {
		all = append(all, c)
	}
	if !first.listed {
		all = append([]*candidate{first}, all...)
		first.listed = true
	}
	return all
}
