package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// reserved begins the operations of this module's own records, which have no evidence.
const reserved = "semel."

// record finds out whether a record agrees with the log, or why the log doesn't have to know it.
func (a *auditor) record(ctx context.Context, rec *semel.Record) error {
	if strings.HasPrefix(rec.ID.Operation, reserved) {
		a.unlogged(Reserved)
		return nil
	}
	ref := keyedDigest(a.log.Subject(rec.ID))
	l, known := a.fold.lives[ref]
	if known {
		l.seen, l.marked = true, rec.Mark != nil
		a.fold.lives[ref] = l
	}
	a.movedAside(rec)
	if a.settle(a.verdict(rec, &l)) {
		return nil
	}
	return a.again(ctx, ref, rec.ID)
}

// verdict is the result of one look at a record and its entries.
type verdict struct {
	same bool        // it agrees with the log
	why  WhyUnlogged // the log doesn't have to know it; empty: neither
}

// settle counts a record that is in order, and reports whether it was.
func (a *auditor) settle(v verdict) bool {
	switch {
	case v.same:
		a.found.Compared++
	case v.why != "":
		a.unlogged(v.why)
	}
	return v.same || v.why != ""
}

func (a *auditor) verdict(rec *semel.Record, l *life) (v verdict) {
	if rec.Mark != nil && (!l.known() || l.sequence() || l.gone(a.fold.latest)) {
		return verdict{why: SequenceMark}
	}
	is := a.log.contentOf(rec, OutcomeDigest(rec))
	switch said := l.content.format; {
	case !l.known():
		// A record from the backup is compared with its entries from before the restore.
		if v.why = a.uncovered(rec); v.why == BeforeEvidence && rec.CreatedAt < a.epoch {
			v.why = ""
		}
	case said > codec.Version, said != 0 && said != is.format && l.version == 1:
		v.why = OtherFormat
	case said != 0:
		v.same = l.content == is
	case l.version == 1:
		v.why = NoContents
	}
	return v
}

// uncovered returns why the log doesn't have to know a record; empty: it does.
func (a *auditor) uncovered(rec *semel.Record) WhyUnlogged {
	op, _ := blinded(a.log.operation(rec.ID.Operation), operationPrefix)
	switch since, logged := a.fold.since[op]; {
	case !logged:
		return NoEvidence
	case rec.CreatedAt < since:
		return BeforeEvidence
	}
	return ""
}

// sequenceOf returns the record as it was under its sequence's name, where programs before
// version 2 kept the newest number. It is nil for everything except a number of a sequence.
func sequenceOf(rec *semel.Record) *semel.Record {
	key, n := rec.ID.Number()
	if n == 0 || n != rec.Sequence {
		return nil
	}
	was := *rec
	was.ID.Key = key
	return &was
}

// movedAside notes that a sequence's entries are about a record that now has a number.
func (a *auditor) movedAside(rec *semel.Record) {
	was := sequenceOf(rec)
	if was == nil {
		return
	}
	ref := keyedDigest(a.log.Subject(was.ID))
	if l, known := a.fold.lives[ref]; known && l.fence == rec.Fence {
		l.kept = true
		a.fold.lives[ref] = l
	}
}

// again looks at a record that disagreed with the log, until neither changes meanwhile, and
// adds its fault.
func (a *auditor) again(ctx context.Context, ref keyedDigest, id semel.ID) error {
	for {
		about, err := a.about(ctx, store.Subject(ref))
		if err != nil {
			return err
		}
		rec, err := a.log.store.Get(ctx, id)
		if errors.Is(err, semel.ErrNotFound) {
			a.unlogged(Gone)
			return nil
		}
		if err != nil {
			return err
		}
		later, err := a.about(ctx, store.Subject(ref))
		if err != nil {
			return err
		}
		if later.entries != about.entries {
			continue // it has changed just now
		}
		v := a.verdict(rec, &about.life)
		if v == (verdict{}) && !about.changes() {
			v, err = a.before(ctx, rec, &about)
		}
		if err == nil && !a.settle(v) {
			a.fault(a.faultOf(rec, ref, &about))
		}
		return err
	}
}

// before judges a record that the log has no change of, or none since the store was restored: it
// may be as it was before the restore, or as its sequence was before it got a record of its own.
func (a *auditor) before(ctx context.Context, rec *semel.Record, about *about) (v verdict, err error) {
	if v.same = about.was(a.log.contentOf(rec, OutcomeDigest(rec))); v.same {
		return v, nil
	}
	if was := sequenceOf(rec); was != nil {
		sequence, err := a.about(ctx, a.log.Subject(was.ID))
		if err != nil {
			return v, err
		}
		switch {
		case sequence.was(a.log.contentOf(was, OutcomeDigest(was))):
			return verdict{same: true}, nil
		case sequence.life.version == 1 && len(sequence.contents) == 0:
			return verdict{why: NoContents}, nil
		}
	}
	if len(about.contents) == 0 && rec.CreatedAt < a.epoch {
		v.why = BeforeRestore
	}
	return v, nil
}

func (a *auditor) faultOf(rec *semel.Record, ref keyedDigest, about *about) AuditFault {
	key, n := numbered(rec)
	f := AuditFault{Kind: RecordUnknown, Record: rec.ID.Encode(), Ref: recordPrefix + ref.String(), Tenant: rec.ID.Tenant, Operation: rec.ID.Operation, Key: key, Sequence: n}
	if len(about.contents) > 0 {
		f.Kind = RecordChanged
		if about.was(a.log.contentOf(rec, OutcomeDigest(rec))) {
			f.Kind = RecordOlder
		}
	}
	if about.changes() {
		f.Entry = &about.life.last
	}
	return f
}

// about is what the log says about one record.
type about struct {
	life     life
	contents []content // after each change, even before the store was restored
	entries  int
}

// changes reports whether the log has a change, since the restore if there was one.
func (x *about) changes() bool { return x.life.known() }

// was reports whether the record had these contents, by the log.
func (x *about) was(c content) bool { return slices.Contains(x.contents, c) }

// about reads what the log says about a record. Compare the number of entries the next time to
// see whether there are more.
func (a *auditor) about(ctx context.Context, s store.Subject) (x about, err error) {
	// This numbers new entries, so that Find sees them.
	if _, err := a.log.store.ReadEvidence(ctx, a.found.Entries, 1); err != nil {
		return x, err
	}
	all, err := (&Reader{store: a.log.store}).Find(ctx, s)
	if err != nil {
		return x, err
	}
	x.entries = len(all)
	var f fold
	for _, n := range all {
		t, _, err := a.entry(ctx, n)
		if err != nil {
			return x, err
		}
		if t.content.format != 0 {
			x.contents = append(x.contents, t.content)
		}
		if n >= a.restored {
			f.add(n, &t)
		}
	}
	x.life = f.lives[keyedDigest(s)]
	return x, nil
}

// entry reads one entry. Its opening may be erased.
func (a *auditor) entry(ctx context.Context, n uint64) (t told, o Opening, err error) {
	en, err := a.log.store.ReadEvidence(ctx, n, 1)
	if err == nil && len(en) == 0 {
		err = errors.New("it is not there any more")
	}
	if err != nil {
		return t, o, fmt.Errorf("evidence: entry %d: %w", n, err)
	}
	t, leaf, err := a.told(n, &en[0])
	if err == nil && en[0].Opening != nil {
		o, err = ParseOpening(leaf, en[0].Opening)
	}
	return t, o, err
}
