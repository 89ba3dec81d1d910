package storetest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// The steps of a history that use the store without an engine.

// revision returns the revision that a write expects: usually the stored one, or else an old
// one, one that nobody wrote, or none. The record that it reads for that is part of the answer.
func (p *player) revision(id semel.ID, kind, n int) (what, read string, expect store.Revision) {
	switch {
	case kind == 9:
		return "zero", "", store.Revision{}
	case kind == 10:
		return "foreign", "", store.Revision{0xf0, byte(p.number)}
	case kind == 11 && len(p.revisions[id]) > 0:
		return "old", "", pick(p.revisions[id], n)
	}
	rec, err := p.store.Get(p.ctx, id)
	if err != nil && !errors.Is(err, semel.ErrNotFound) {
		p.fault = err
	}
	return "right", "over " + p.text(rec) + " ", revisionOf(rec)
}

func (p *player) get(s step) answer {
	rec, err := p.store.Get(p.ctx, p.ids[s.id])
	if errors.Is(err, semel.ErrNotFound) {
		return answer{"get nothing", p.outcome(err)}
	}
	return answer{"get record", p.outcome(err) + p.text(rec)}
}

// apply writes a record that no engine made.
func (p *player) apply(s step) answer {
	id := p.ids[s.id]
	what, read, expect := p.revision(id, s.a, s.b)
	now := p.clock.at
	// The time makes the revision unique.
	rec := semel.Record{
		ID: id, Revision: store.Revision{1}, State: semel.Processing, Principal: "p", Fingerprint: payload(fmt.Sprint(s.c % 2)),
		Fence: int64(now) / 1000, Origin: int64(now) / 1000, Attempt: 1, Holder: "test",
		CreatedAt: now, UpdatedAt: now, StartedAt: now, LeaseUntil: now.Add(time.Minute), NextAt: now.Add(time.Minute),
	}
	binary.BigEndian.PutUint64(rec.Revision[8:], uint64(now))
	switch s.c % 6 {
	case 1: // held
		rec.LeaseUntil, rec.NextAt, rec.Held, rec.HeldReason = 0, 0, true, "reason"
	case 2, 3: // completed, and sometimes already due
		rec.State, rec.Disposition, rec.LeaseUntil, rec.EndedAt = semel.Completed, semel.DispositionCompleted, 0, now
		rec.ExpiresAt = now.Add(time.Duration(s.b-3) * time.Minute)
		rec.NextAt = rec.ExpiresAt
		rec.Result.Data = make([]byte, s.b*s.b*10)
	case 4: // failed, for ever
		rec.State, rec.Disposition, rec.LeaseUntil, rec.EndedAt, rec.NextAt = semel.Failed, semel.DispositionRejected, 0, now, 0
		rec.Failure = &store.Failure{Code: "code", Message: "no"}
	case 5: // with a ledger
		rec.Effects = []store.EffectRecord{{Name: "charge", Key: "an effect of the test", State: store.EffectStarted, Fence: rec.Fence, StartedAt: now}}
	}
	w := store.Write{Record: new(rec), Expect: expect}
	if p.store.both.Evidence != nil {
		for i := range s.a % 3 {
			w.Evidence = append(w.Evidence, entry(id, fmt.Sprint(rec.Revision, " ", i)))
		}
	}
	p.writes = append(p.writes, w)
	ans := p.send("apply "+what, w)
	ans.text = read + ans.text
	return ans
}

func (p *player) again(s step) answer {
	if len(p.writes) == 0 {
		return answer{"again nothing", ""}
	}
	ans := p.send("again", pick(p.writes, s.a))
	p.late = p.late || ans.kind == "again applied"
	return ans
}

func (p *player) send(kind string, w store.Write) answer {
	cur, applied, err := p.store.Apply(p.ctx, w)
	kind += " refused"
	if applied {
		kind = strings.TrimSuffix(kind, "refused") + "applied"
	}
	return answer{kind, p.outcome(err) + p.text(cur)}
}

// due lists the due records, sorted by identity.
func (p *player) due(s step) answer {
	index := p.store.Extras().Due
	if index == nil {
		return answer{"due missing", ""}
	}
	until := p.clock.at.Add([]time.Duration{0, time.Minute, -time.Minute, time.Hour, 48 * time.Hour, -time.Hour}[s.a%6])
	if at := p.someDue(s.b); s.c >= 8 && at != 0 {
		until = at // to the nanosecond
	}
	page, err := index.Due(p.ctx, store.DueQuery{Until: until, Limit: 1 << 20})
	err = errors.Join(err, errors.Join(page.Unreadable...))
	recs := slices.DeleteFunc(page.Records, func(rec semel.Record) bool { return rec.ID.Tenant != p.tenant })
	slices.SortFunc(recs, byIdentity)
	return answer{"due " + some(len(recs)), p.outcome(err) + p.texts(recs)}
}

// someDue returns the NextAt of a record that the history has written, or zero.
func (p *player) someDue(n int) store.Instant {
	if len(p.writes) == 0 {
		return 0
	}
	return pick(p.writes, n).Record.NextAt
}

func byIdentity(a, b semel.Record) int {
	return cmp.Or(strings.Compare(a.ID.Operation, b.ID.Operation), strings.Compare(a.ID.Key, b.ID.Key), strings.Compare(a.ID.Principal, b.ID.Principal))
}

func (p *player) purge(s step) answer {
	purger := p.store.Extras().Purge
	if purger == nil {
		return answer{"purge missing", ""}
	}
	var refs []store.Ref
	var text strings.Builder
	for i := range 1 + s.a%3 {
		id := p.ids[(s.id+i)%len(p.ids)]
		_, read, revision := p.revision(id, (s.b+5*i)%12, s.c)
		text.WriteString(read)
		refs = append(refs, store.Ref{ID: id, Revision: revision})
	}
	n, err := purger.Purge(p.ctx, refs)
	return answer{"purge " + some(n), text.String() + p.outcome(err) + fmt.Sprint(n, " deleted")}
}

// search reads all pages of a search through the history's own records.
func (p *player) search(s step) answer {
	id := p.ids[s.id]
	q := store.Query{Tenant: &p.tenant, Limit: 1 + s.b}
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
		// The contract doesn't say how new such a record is.
		slices.SortFunc(recs, byIdentity)
	}
	return answer{"search " + kind + " " + some(len(recs)), p.outcome(err) + p.texts(recs)}
}

func (p *player) pages(ctx context.Context, q store.Query) (recs []semel.Record, err error) {
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
