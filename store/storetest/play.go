package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// clock is the clock of one history on one store. It replaces the store's clock, so that two
// stores' answers are equal to the nanosecond.
type clock struct{ at store.Instant }

func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

// timed is a store with the clock of a history, and with the extras that both stores have. It
// stays the same when the store is reopened.
type timed struct {
	semel.Store
	clock *clock
	both  store.Extras
}

func (t *timed) Now(context.Context) (store.Instant, error) { return t.clock.at, nil }

func (t *timed) Extras() store.Extras {
	var x store.Extras
	if t.both.Due != nil {
		x.Due = t
	}
	if t.both.Purge != nil {
		x.Purge = t
	}
	if t.both.Watch != nil {
		x.Watch = t
	}
	if t.both.Search != nil {
		x.Search = t
	}
	return x
}

func (t *timed) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return t.Store.Extras().Due.Due(ctx, q)
}

func (t *timed) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	return t.Store.Extras().Purge.Purge(ctx, refs)
}

func (t *timed) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	return t.Store.Extras().Watch.Watch(ctx, id)
}

func (t *timed) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return t.Store.Extras().Search.Search(ctx, q)
}

// answer is the result of a step, in a form that is the same on all stores.
type answer struct {
	kind string // for counting
	text string
}

// player plays a history on one store.
type player struct {
	ctx    context.Context
	store  *timed
	clock  *clock
	engine *semel.Engine
	tenant string
	ids    []semel.ID
	reopen func() semel.Store // nil: the store keeps nothing, or is the oracle

	attempts   []*semel.Attempt
	reconciled chan semel.Reconciled
	writes     []store.Write
	revisions  map[semel.ID][]store.Revision // seen so far, for writes that expect an old one
	names      map[string]string             // for values that differ between runs, by order of appearance
	late       bool                          // a record was stored long after its creation
	number     int                           // of the step
	fault      error                         // the store failed
}

// newPlayer begins a history. It uses only the extras that both stores have.
func newPlayer(ctx context.Context, s semel.Store, both store.Extras, tenant string, begin store.Instant) (*player, error) {
	p := &player{
		ctx: ctx, clock: &clock{begin}, tenant: tenant, reconciled: make(chan semel.Reconciled, 1<<10),
		revisions: map[semel.ID][]store.Revision{}, names: map[string]string{},
	}
	p.store = &timed{s, p.clock, both}
	events := &semel.Events{Reconciled: func(ev semel.Reconciled) { p.reconciled <- ev }}
	var err error
	p.engine, err = semel.New(p.store, &semel.Options{Operations: operations, Node: "node", StoreTimeout: time.Minute, Events: events})
	for i := range identities {
		p.ids = append(p.ids, p.identity(i))
	}
	return p, err
}

// close ends a history, and deletes its records if the store can.
func (p *player) close() error {
	return errors.Join(p.clear(), p.engine.Close(context.WithoutCancel(p.ctx)))
}

// last returns the final records, as further answers.
func (p *player) last() (all []answer) {
	for i := range p.ids {
		all = append(all, p.get(step{verb: vGet, id: i}))
		if p.store.both.Evidence != nil {
			all = append(all, p.entries(p.ids[i]))
		}
	}
	return append(all, p.search(step{verb: vSearch}))
}

func (p *player) step(number int, s step) answer {
	// No two steps happen at the same time, so that all records have an order.
	p.clock.advance(time.Millisecond)
	p.number = number
	switch s.verb {
	case vGet:
		return p.get(s)
	case vApply:
		return p.apply(s)
	case vAgain:
		return p.again(s)
	case vDue:
		return p.due(s)
	case vPurge:
		return p.purge(s)
	case vSearch:
		return p.search(s)
	case vAdvance:
		return p.advance(s)
	case vReopen:
		if p.reopen != nil {
			p.store.Store = p.reopen()
		}
		return answer{"reopen", ""}
	}
	return p.engineStep(s)
}

// clear deletes the records of the history.
func (p *player) clear() error {
	extras := p.store.Extras()
	if extras.Purge == nil || extras.Search == nil {
		return nil
	}
	ctx := context.WithoutCancel(p.ctx)
	recs, err := p.pages(ctx, store.Query{Tenant: &p.tenant, Limit: store.MaxSearchLimit})
	if err != nil || len(recs) == 0 {
		return err
	}
	refs := make([]store.Ref, len(recs))
	for i := range recs {
		refs[i] = store.Ref{ID: recs[i].ID, Revision: recs[i].Revision}
	}
	if n, err := extras.Purge.Purge(ctx, refs); err != nil || n != len(refs) {
		return fmt.Errorf("%d of %d records of a history were deleted: %w", n, len(refs), err)
	}
	return nil
}

// pick chooses an element, counting from the last one, which is 0. n must not be negative.
func pick[T any](of []T, n int) T { return of[len(of)-1-n%len(of)] }

func some(n int) string {
	if n == 0 {
		return "none"
	}
	return "some"
}

// outcome returns the text of an error, the same in every run. An error that means that the
// store failed is a fault.
func (p *player) outcome(err error) string {
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*semel.Error](err)
	if !ok || e.Code == semel.CodeStoreUnavailable || e.Code == semel.CodeUnknown {
		p.fault = errors.Join(p.fault, err)
	}
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	return "error " + strings.Join(lines, "; ") + " "
}

// text returns a record as text, with names in place of the values that differ between runs.
func (p *player) text(rec *semel.Record) string {
	if rec == nil || rec.Revision.IsZero() {
		return "none"
	}
	if old := p.revisions[rec.ID]; !slices.Contains(old, rec.Revision) {
		p.revisions[rec.ID] = append(old, rec.Revision)
	}
	revision := rec.Revision.String()
	b, err := json.Marshal(rec)
	if err != nil {
		p.fault = err
	}
	text := strings.Replace(string(b), revision, p.name("revision", revision), 1)
	if from := rec.HeldFrom.String(); !rec.HeldFrom.IsZero() {
		text = strings.Replace(text, from, p.name("revision", from), 1)
	}
	for _, ef := range rec.Effects {
		text = strings.Replace(text, ef.Key, p.name("effect", ef.Key), 1)
	}
	return text
}

// name names a value by the order in which values appeared.
func (p *player) name(what, value string) string {
	if p.names[value] == "" {
		p.names[value] = fmt.Sprint(what, "-", len(p.names))
	}
	return p.names[value]
}

// entries returns one identity's entries in the evidence log.
func (p *player) entries(id semel.ID) answer {
	all, err := readAll(p.ctx, p.store.Store, 0)
	if err != nil {
		p.fault = err
		return answer{}
	}
	numbers, err := evidenceOf(p.store.Store).FindEvidence(p.ctx, subject(id), 0, len(all))
	var texts []string
	for _, n := range numbers {
		if n >= uint64(len(all)) {
			p.fault = fmt.Errorf("entry %d of %d is found", n, len(all))
			return answer{}
		}
		texts = append(texts, fmt.Sprintf("%s %s", all[n].Leaf, all[n].Opening))
	}
	return answer{"entries", p.outcome(err) + strings.Join(texts, ", ")}
}

func (p *player) texts(recs []semel.Record) string {
	list := make([]string, len(recs))
	for i := range recs {
		list[i] = p.text(&recs[i])
	}
	return fmt.Sprintf("%d records\n\t%s", len(recs), strings.Join(list, "\n\t"))
}
