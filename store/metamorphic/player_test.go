package metamorphic

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// store is what every store offers.
type store interface {
	semel.Store
	semel.DueStore
	semel.PurgeStore
	semel.WatchStore
	semel.SearchStore
}

// epoch is when the first list begins. Each begins after the one before has ended,
// for a store may have kept that it was later already. Answers tell time from where
// the list began, as if that were the epoch.
var epoch = semel.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 123456789, time.UTC))

// clock is the time of one list on one store. A list takes the time from here and
// not from the store, so that the answers can be the same to the nanosecond.
type clock struct{ begin, at semel.Instant }

func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

// timed is a store with the clock of a list.
type timed struct {
	store
	clock *clock
}

func (t timed) Now(context.Context) (semel.Instant, error) { return t.clock.at, nil }

// timedLocal is the same for a store in the memory of the process, which the engine
// works on in another way.
type timedLocal struct {
	timed
	semel.LocalStore
}

func withClock(s store, c *clock) store {
	t := timed{s, c}
	if local, ok := s.(semel.LocalStore); ok {
		return timedLocal{t, local}
	}
	return t
}

// answer is what a step gave, in a form that is the same on all stores.
type answer struct {
	kind string // for counting
	text string
}

// player plays a list on one store.
type player struct {
	ctx    context.Context
	store  store
	clock  *clock
	engine *semel.Engine
	tenant string
	ids    []semel.ID

	attempts   []*semel.Attempt
	reconciled chan semel.ReconciledEvent
	writes     []semel.Write
	revisions  map[semel.ID][]semel.Revision // that were seen, for writes that expect an old one
	names      map[string]string             // of what differs from run to run, by order of appearance
	late       bool                          // a record was stored long after it was created
	number     int                           // of the step
	fault      error                         // the store failed
}

// play plays a list from a moment on and returns what each step gave, and when it
// ended. It leaves nothing in the store.
func play(ctx context.Context, s store, begin semel.Instant, l list) (answers []answer, ended semel.Instant, err error) {
	p := &player{
		ctx: ctx, clock: &clock{begin, begin}, tenant: fmt.Sprint("tenant-", l.tenant),
		revisions: map[semel.ID][]semel.Revision{}, names: map[string]string{},
	}
	p.store = withClock(s, p.clock)
	p.reconciled = make(chan semel.ReconciledEvent, 1<<10)
	events := &semel.Events{Reconciled: func(ev semel.ReconciledEvent) { p.reconciled <- ev }}
	if p.engine, err = semel.New(p.store, &semel.Options{Operations: operations, Node: "node", StoreTimeout: time.Minute, Events: events}); err != nil {
		return nil, begin, err
	}
	defer func() { err = errors.Join(err, p.clear(), p.engine.Close(context.WithoutCancel(ctx))) }()
	for i := range identities {
		p.ids = append(p.ids, p.identity((i+l.focus)%identities))
	}
	for i, st := range l.steps {
		p.number = i
		// No two steps happen at the same time, so that records have an order.
		p.clock.advance(time.Millisecond)
		answers = append(answers, p.step(st))
		if p.fault != nil {
			return answers, p.clock.at, fmt.Errorf("step %d, %v: %w", i, st, p.fault)
		}
	}
	// What is stored in the end is an answer too.
	for i := range p.ids {
		answers = append(answers, p.get(step{verb: vGet, id: i}))
	}
	answers = append(answers, p.search(step{verb: vSearch}))
	return answers, p.clock.at, p.fault
}

func (p *player) step(s step) answer {
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
	}
	return p.engineStep(s)
}

// clear deletes what the list has left.
func (p *player) clear() error {
	ctx := context.WithoutCancel(p.ctx)
	recs, err := p.pages(ctx, semel.Query{Tenant: &p.tenant, Limit: semel.MaxSearchLimit})
	if err != nil || len(recs) == 0 {
		return err
	}
	refs := make([]semel.Ref, len(recs))
	for i := range recs {
		refs[i] = semel.Ref{ID: recs[i].ID, Revision: recs[i].Revision}
	}
	if n, err := p.store.Purge(ctx, refs); err != nil || n != len(refs) {
		return fmt.Errorf("%d of %d records of a list were deleted: %w", n, len(refs), err)
	}
	return nil
}

// pick chooses one of a list, the last for 0; n is above zero.
func pick[T any](of []T, n int) T { return of[len(of)-1-n%len(of)] }

// revision is what a write expects: the stored revision as a rule, else an old one,
// one that nobody wrote, or none.
func (p *player) revision(id semel.ID, kind, n int) (string, semel.Revision) {
	switch {
	case kind == 9:
		return "zero", semel.Revision{}
	case kind == 10:
		return "foreign", semel.Revision{0xf0, byte(p.number)}
	case kind == 11 && len(p.revisions[id]) > 0:
		return "old", pick(p.revisions[id], n)
	}
	rec, err := p.store.Get(p.ctx, id)
	if err != nil && !errors.Is(err, semel.ErrNotFound) {
		p.fault = err
	}
	return "right", rec.Revision
}

func (p *player) get(s step) answer {
	rec, err := p.store.Get(p.ctx, p.ids[s.id])
	if errors.Is(err, semel.ErrNotFound) {
		return answer{"get nothing", p.outcome(err)}
	}
	return answer{"get record", p.outcome(err) + p.text(rec)}
}

// apply writes a record of its own making.
func (p *player) apply(s step) answer {
	id := p.ids[s.id]
	what, expect := p.revision(id, s.a, s.b)
	now := p.clock.at
	// The moment makes the revision one that no other write has.
	rec := semel.Record{
		ID: id, Revision: semel.Revision{1}, State: semel.Processing, Principal: "p", Fingerprint: payload(s.c % 2),
		Fence: int64(now) / 1000, Origin: int64(now) / 1000, Attempt: 1, Holder: "test",
		CreatedAt: now, UpdatedAt: now, StartedAt: now, LeaseUntil: now.Add(time.Minute), NextAt: now.Add(time.Minute),
	}
	binary.BigEndian.PutUint64(rec.Revision[8:], uint64(now))
	switch s.c % 6 {
	case 1: // held
		rec.LeaseUntil, rec.NextAt, rec.Held = 0, 0, "reason"
	case 2, 3: // completed, and sometimes due already
		rec.State, rec.Disposition, rec.LeaseUntil, rec.EndedAt = semel.Completed, semel.DispositionCompleted, 0, now
		rec.ExpiresAt = now.Add(time.Duration(s.b-3) * time.Minute)
		rec.NextAt = rec.ExpiresAt
		rec.Result.Data = make([]byte, s.b*s.b*10)
	case 4: // failed, for ever
		rec.State, rec.Disposition, rec.LeaseUntil, rec.EndedAt, rec.NextAt = semel.Failed, semel.DispositionRejected, 0, now, 0
		rec.Failure = &semel.Failure{Code: "code", Message: "no"}
	case 5: // with a ledger
		rec.Effects = []semel.EffectRecord{{Name: "charge", Key: "an effect of the test", State: semel.EffectStarted, Fence: rec.Fence, StartedAt: now}}
	}
	w := semel.Write{Record: rec, Expect: expect}
	p.writes = append(p.writes, w)
	return p.send("apply "+what, w)
}

func (p *player) again(s step) answer {
	if len(p.writes) == 0 {
		return answer{"again nothing", ""}
	}
	ans := p.send("again", pick(p.writes, s.a))
	p.late = p.late || ans.kind == "again applied"
	return ans
}

func (p *player) send(kind string, w semel.Write) answer {
	cur, applied, err := p.store.Apply(p.ctx, w)
	kind += " refused"
	if applied {
		kind = strings.TrimSuffix(kind, "refused") + "applied"
	}
	return answer{kind, p.outcome(err) + p.text(cur)}
}

// due lists what is due, in no order.
func (p *player) due(s step) answer {
	until := p.clock.at.Add([]time.Duration{0, time.Minute, -time.Minute, time.Hour, 48 * time.Hour, -time.Hour}[s.a%6])
	page, err := p.store.Due(p.ctx, semel.DueQuery{Until: until, Limit: 1 << 16})
	recs := page.Records
	slices.SortFunc(recs, byIdentity)
	return answer{"due " + some(len(recs)), p.outcome(err) + p.texts(recs)}
}

func byIdentity(a, b semel.Record) int {
	return cmp.Or(strings.Compare(a.ID.Operation, b.ID.Operation), strings.Compare(a.ID.Key, b.ID.Key), strings.Compare(a.ID.Principal, b.ID.Principal))
}

func (p *player) purge(s step) answer {
	var refs []semel.Ref
	for i := range 1 + s.a%3 {
		id := p.ids[(s.id+i)%len(p.ids)]
		_, revision := p.revision(id, (s.b+5*i)%12, s.c)
		refs = append(refs, semel.Ref{ID: id, Revision: revision})
	}
	n, err := p.store.Purge(p.ctx, refs)
	return answer{"purge " + some(n), p.outcome(err) + fmt.Sprint(n, " deleted")}
}

// search goes through all pages of a search of the list's own records.
func (p *player) search(s step) answer {
	id := p.ids[s.id]
	q := semel.Query{Tenant: &p.tenant, Limit: 1 + s.b}
	kind := "all"
	switch s.a {
	case 1:
		kind, q.State = "state", []semel.State{semel.Processing, semel.Completed, semel.Failed}[s.c%3]
	case 2:
		kind, q.Held = "held", true
	case 3:
		kind, q.Key = "key", id.Key
	case 4:
		kind, q.Operation = "operation", id.Operation
	case 5:
		kind, q.Principal = "principal", "p"
	case 6:
		kind, q.After = "after", p.clock.at.Add(-time.Duration(s.c)*time.Minute)
	case 7:
		kind, q.Before = "before", p.clock.at.Add(-time.Duration(s.c)*time.Minute)
	case 8:
		q.Cursor = "not a cursor"
		_, err := p.engine.Search(p.ctx, q)
		if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			return answer{"search bad cursor", "accepted: " + p.outcome(err)}
		}
		return answer{"search bad cursor", "refused"}
	}
	recs, err := p.pages(p.ctx, q)
	if p.late {
		// Whether it counts as new is not laid down.
		slices.SortFunc(recs, byIdentity)
	}
	return answer{"search " + kind + " " + some(len(recs)), p.outcome(err) + p.texts(recs)}
}

func (p *player) pages(ctx context.Context, q semel.Query) (recs []semel.Record, err error) {
	for range 1000 {
		page, err := p.engine.Search(ctx, q)
		if err != nil {
			return nil, err
		}
		recs = append(recs, page.Records...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return recs, nil
		}
	}
	return nil, errors.New("a search does not end")
}

func (p *player) advance(s step) answer {
	d := []time.Duration{time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour, 11 * time.Hour, 25 * time.Hour}[s.a%6]
	p.clock.advance(d)
	return answer{"advance", d.String()}
}

func some(n int) string {
	if n == 0 {
		return "none"
	}
	return "some"
}

// outcome is an error without what differs from run to run. What says that the
// store did not do its work is a fault.
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

// text is a record as if the list had begun at the epoch, with names for what differs
// from run to run.
func (p *player) text(rec semel.Record) string {
	if rec.Revision.IsZero() {
		return "none"
	}
	if old := p.revisions[rec.ID]; !slices.Contains(old, rec.Revision) {
		p.revisions[rec.ID] = append(old, rec.Revision)
	}
	revision := rec.Revision.String()
	p.shift(&rec)
	b, err := json.Marshal(rec)
	if err != nil {
		p.fault = err
	}
	text := strings.Replace(string(b), revision, p.name("revision", revision), 1)
	for _, ef := range rec.Effects {
		text = strings.Replace(text, ef.Key, p.name("effect", ef.Key), 1)
	}
	return text
}

// name is that of a value, by the order in which values appeared.
func (p *player) name(what, value string) string {
	if p.names[value] == "" {
		p.names[value] = fmt.Sprint(what, "-", len(p.names))
	}
	return p.names[value]
}

// shift moves a record in time.
func (p *player) shift(rec *semel.Record) {
	back := p.clock.begin.Sub(epoch)
	move := func(instants ...*semel.Instant) {
		for _, at := range instants {
			if *at != 0 {
				*at = at.Add(-back)
			}
		}
	}
	move(&rec.CreatedAt, &rec.UpdatedAt, &rec.StartedAt, &rec.EndedAt, &rec.LeaseUntil, &rec.ExpiresAt, &rec.NextAt)
	rec.Fence -= back.Microseconds()
	rec.Origin -= back.Microseconds()
	rec.Effects, rec.Earlier = slices.Clone(rec.Effects), slices.Clone(rec.Earlier)
	for i := range rec.Effects {
		ef := &rec.Effects[i]
		move(&ef.StartedAt, &ef.SettledAt)
		ef.Fence -= back.Microseconds()
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		move(&at.StartedAt, &at.EndedAt)
		at.Fence -= back.Microseconds()
	}
}

func (p *player) texts(recs []semel.Record) string {
	list := make([]string, len(recs))
	for i := range recs {
		list[i] = p.text(recs[i])
	}
	return fmt.Sprintf("%d records\n\t%s", len(recs), strings.Join(list, "\n\t"))
}

// count adds up the kinds of answers.
func count(into map[string]int, answers []answer) {
	for _, a := range answers {
		into[a.kind]++
	}
}

func summary(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return strings.Join(parts, ", ")
}
