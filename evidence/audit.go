package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semelhq/semel/store"
)

// Discrepancy says how a record and the log differ.
type Discrepancy string

// The discrepancies.
const (
	// RecordMissing: the log says that there is a record, but the store doesn't have it.
	RecordMissing Discrepancy = "missing"
	// RecordChanged: its contents differ from the log's after its last change.
	RecordChanged Discrepancy = "changed"
	// RecordOlder: it has its contents from before its last change, as if somebody had put them back.
	RecordOlder Discrepancy = "older"
	// RecordUnknown: the log has no change of it, although the log covered its operation before
	// the record was created.
	RecordUnknown Discrepancy = "unknown"
)

// WhyUnlogged says why the log doesn't have to know a record.
type WhyUnlogged string

// The reasons.
const (
	// NoEvidence: the log has nothing about the record's operation.
	NoEvidence WhyUnlogged = "no_evidence"
	// BeforeRestore: it comes from the backup that the store was restored from, and the log has
	// nothing about it.
	BeforeEvidence WhyUnlogged = "before_evidence"
	// NoContents: its entries have no digest of its contents, because one of the first versions
	// wrote them.
	BeforeRestore WhyUnlogged = "before_restore"
	// NoContents: its entries have no digest of its contents. The first versions wrote such.
	NoContents WhyUnlogged = "no_contents"
	// OtherFormat: its entries were written by another version, which stored the record in a
	// form that this one can't compare.
	OtherFormat WhyUnlogged = "other_format"
	// SequenceMark: it only orders the numbers of a sequence, which have records of their
	// own.
	SequenceMark WhyUnlogged = "sequence_mark"
	// Reserved: it belongs to an operation of this module, which keeps no evidence.
	Reserved WhyUnlogged = "reserved"
	// Gone: it was deleted while the audit read.
	Gone WhyUnlogged = "gone"
)

// AuditFault is a record that differs from the log.
type AuditFault struct {
	Kind Discrepancy `json:"kind"`
	// Record is the [store.ID.Encode] of a record in the store.
	Record string `json:"record,omitempty"`
	// Tenant, Operation and Key name it, unless it is missing and the opening that names it was
	// erased. Sequence is its number, if it is part of a sequence.
	Tenant    string `json:"tenant,omitempty"`
	Operation string `json:"operation,omitempty"`
	Key       string `json:"idempotency_key,omitempty"`
	Sequence  uint64 `json:"sequence,omitempty"`
	// Ref is the record's blinded name in the log.
	Ref string `json:"record_ref"`
	// Entry is the number of the last entry about a change of the record; nil if there is none.
	Entry *uint64 `json:"entry,omitempty"`
}

// Audit is the result of [Log.Audit]. Each record agrees with the log, doesn't have to be in it
// for one of the reasons, or is a fault.
type Audit struct {
	// Entries and Records count what the audit read. Compared records agree with the log.
	Entries  uint64 `json:"entries"`
	Records  int    `json:"records"`
	Compared int    `json:"compared"`
	// Unlogged counts the records that don't have to be in the log, and Reasons says why.
	Unlogged int                 `json:"unlogged"`
	Reasons  map[WhyUnlogged]int `json:"unlogged_reasons"`
	// Faults has the first 1000 faults, and Found counts all. Missing records aren't among Records.
	Faults []AuditFault `json:"faults"`
	Found  int          `json:"faults_found"`
}

// maxAuditFaults bounds how many faults an audit lists.
const maxAuditFaults = 1000

// Audit compares every record of the store with the last entry about it (IDS-XV.5). It reads
// the log and then the records in pages, while both may change: it looks again at each
// difference before it reports a fault. It takes about 200 bytes of memory for each record. To
// check that the log itself is as signed, use [Verify].
//
// If an operation's evidence was switched off for a while, and on again, it has gaps, and
// records that changed meanwhile look like faults.
//
// Audit calls progress after each page, unless it is nil.
func (l *Log) Audit(ctx context.Context, progress func(*Audit)) (Audit, error) {
	search := l.store.Extras().Search
	if search == nil {
		return Audit{}, errors.New("evidence: the store can't list its records, so they can't be audited")
	}
	if progress == nil {
		progress = func(*Audit) {}
	}
	a := auditor{log: l, progress: progress, found: Audit{Faults: []AuditFault{}, Reasons: map[WhyUnlogged]int{}}}
	if err := a.readLog(ctx); err != nil {
		return a.found, err
	}
	if err := a.readRecords(ctx, search); err != nil {
		return a.found, err
	}
	records := a.found.Compared + a.found.Unlogged + a.found.Found
	if err := a.missing(ctx); err != nil {
		return a.found, err
	}
	if records != a.found.Records {
		return a.found, fmt.Errorf("evidence: of %d records only %d were audited: this is a fault of the program", a.found.Records, records)
	}
	return a.found, nil
}

type auditor struct {
	log      *Log
	progress func(*Audit)
	found    Audit
	fold     fold
	restored uint64        // the number of entries when the store was last restored
	epoch    store.Instant // when it was restored
}

func (a *auditor) readLog(ctx context.Context) error {
	for {
		page, err := a.log.store.ReadEvidence(ctx, a.found.Entries, readBatch)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			n := a.found.Entries
			a.found.Entries++
			t, _, err := a.told(n, &page[i])
			if err != nil {
				return err
			}
			if a.fold.add(n, &t); t.what == restored {
				a.restored, a.epoch = a.found.Entries, t.at
			}
		}
		a.progress(&a.found)
	}
}

// told reads an entry. Entries of version 1 name their operation in the opening.
func (a *auditor) told(n uint64, en *store.Entry) (t told, leaf Artifact, err error) {
	if leaf, err = ParseArtifact(en.Leaf); err != nil {
		return t, leaf, fmt.Errorf("entry %d: %w", n, err)
	}
	t = tell(&leaf)
	if t.version == 1 && en.Opening != nil {
		if o, err := ParseOpening(leaf, en.Opening); err == nil {
			t.operation, _ = blinded(a.log.operation(o.Operation), operationPrefix)
		}
	}
	return t, leaf, nil
}

func (a *auditor) readRecords(ctx context.Context, search store.Searcher) error {
	q := store.Query{Limit: store.MaxSearchLimit}
	for {
		page, err := search.Search(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Records {
			a.found.Records++
			if err := a.record(ctx, &page.Records[i]); err != nil {
				return err
			}
		}
		a.progress(&a.found)
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// missing adds the records that the log has and the search didn't find. Anything written since
// then has entries of its own.
func (a *auditor) missing(ctx context.Context) error {
	now, err := a.log.store.Now(ctx)
	if err != nil {
		return err
	}
	for ref, l := range a.fold.lives {
		if l.gone(now) || l.seen && !l.lost() {
			continue
		}
		about, err := a.about(ctx, store.Subject(ref))
		if err != nil {
			return err
		}
		if about.life.last != l.last || about.life.isPurged {
			continue
		}
		t, o, err := a.entry(ctx, l.last)
		if err != nil {
			return err
		}
		if l.marked {
			purged, err := a.purgedNumber(ctx, &l, ref, &o)
			if err != nil {
				return err
			}
			if purged {
				continue
			}
		}
		a.fault(AuditFault{
			Kind: RecordMissing, Ref: recordPrefix + ref.String(), Tenant: o.Tenant, Operation: o.Operation, Key: o.IdempotencyKey, Sequence: t.number, Entry: &l.last,
		})
	}
	slices.SortFunc(a.found.Faults, func(x, y AuditFault) int { return cmp.Compare(x.Ref, y.Ref) })
	return nil
}

// lost reports whether a mark has replaced a number with an outcome, and the audit has seen no
// record of that number.
func (l *life) lost() bool { return l.marked && l.sequence() && !l.kept && l.what.harmful() }

// purgedNumber reports whether a number, whose place in the sequence a mark has taken, was
// purged under its present name. If its opening was erased, nothing shows that.
func (a *auditor) purgedNumber(ctx context.Context, l *life, sequence keyedDigest, o *Opening) (bool, error) {
	if o.IdempotencyKey == "" {
		return true, nil
	}
	numbers, err := (&Reader{store: a.log.store}).Find(ctx, a.log.Name(o.Tenant, o.IdempotencyKey))
	for _, n := range numbers {
		t, _, err := a.entry(ctx, n)
		if err != nil {
			return false, err
		}
		if t.what == purged && t.sequence == sequence && t.fence == l.fence {
			return true, nil
		}
	}
	return false, err
}

func (a *auditor) fault(f AuditFault) {
	if a.found.Found++; len(a.found.Faults) < maxAuditFaults {
		a.found.Faults = append(a.found.Faults, f)
	}
}

func (a *auditor) unlogged(why WhyUnlogged) {
	a.found.Unlogged++
	a.found.Reasons[why]++
}
