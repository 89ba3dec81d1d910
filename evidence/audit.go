package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Discrepancy says how a record and the log differ.
type Discrepancy string

// The discrepancies.
const (
	// RecordMissing: by the log there is a record, and it isn't in the store.
	RecordMissing Discrepancy = "missing"
	// RecordChanged: it isn't what the log says that it was after its last change.
	RecordChanged Discrepancy = "changed"
	// RecordOlder: it is what it was before its last change, as if it were put back.
	RecordOlder Discrepancy = "older"
	// RecordUnknown: the log has nothing about it, although it has about older records of
	// its operation.
	RecordUnknown Discrepancy = "unknown"
)

// AuditFault is one record that isn't as the log says.
type AuditFault struct {
	Kind Discrepancy `json:"kind"`
	// Record is [store.ID.Encode] of a record that the store has.
	Record string `json:"record,omitempty"`
	// Tenant, Operation and Key name it, unless it is missing and the opening that names it
	// was erased.
	Tenant    string `json:"tenant,omitempty"`
	Operation string `json:"operation,omitempty"`
	Key       string `json:"idempotency_key,omitempty"`
	// Ref is the record's blinded name in the log.
	Ref string `json:"record_ref"`
	// Entry is the number of the last entry about the record; nil if there is none.
	Entry *uint64 `json:"entry,omitempty"`
}

// Audit is what [Log.Audit] found.
type Audit struct {
	// Entries were read, and Records, of which Compared were held against an entry.
	// The log has nothing about Unlogged ones, and needn't: their operations kept no
	// evidence when they were made.
	Entries  uint64 `json:"entries"`
	Records  int    `json:"records"`
	Compared int    `json:"compared"`
	Unlogged int    `json:"unlogged"`
	// Faults are the first that were found, at most 1000, and Found counts all.
	Faults []AuditFault `json:"faults"`
	Found  int          `json:"faults_found"`
}

// maxAuditFaults bounds how many faults an audit lists.
const maxAuditFaults = 1000

// Audit compares every record of the store with the last entry about it (IDS-XV.5). It reads
// the log and then the records in pages, while both may change: what differs is looked at
// again before it is a fault. It takes about 150 bytes of memory for each record. That the
// log itself is as it was signed is for [Verify].
//
// Evidence of an operation that was switched off for a while, and on again, has gaps, and
// records that changed meanwhile look like faults.
//
// Progress is called after each page, if it isn't nil.
func (l *Log) Audit(ctx context.Context, progress func(*Audit)) (Audit, error) {
	search := l.store.Extras().Search
	if search == nil {
		return Audit{}, errors.New("evidence: the store can't list its records, so they can't be audited")
	}
	if progress == nil {
		progress = func(*Audit) {}
	}
	a := auditor{log: l, progress: progress, found: Audit{Faults: []AuditFault{}}, last: map[store.Subject]lastEntry{}, since: map[string]store.Instant{}}
	if err := a.readLog(ctx); err != nil {
		return a.found, err
	}
	if err := a.readRecords(ctx, search); err != nil {
		return a.found, err
	}
	return a.found, a.missing(ctx)
}

type auditor struct {
	log      *Log
	progress func(*Audit)
	found    Audit
	last     map[store.Subject]lastEntry
	since    map[string]store.Instant // when an operation is first in the log
}

// lastEntry is the last entry about a record that says what it is.
type lastEntry struct {
	n       uint64
	until   store.Instant // until when the record is kept; zero: its attempt isn't over
	content string
	purged  bool
	seen    bool // the store has the record
}

// take notes what an entry says about its record.
func (at *lastEntry) take(n uint64, a *Artifact) (says bool) {
	switch p := &a.Payload; {
	case a.Type == TypePurged:
		at.purged = true
	case p.Content == "":
		return false
	default:
		*at = lastEntry{n: n, content: p.Content}
		if p.Disposition != "" {
			at.until = store.InstantOf(p.KeptUntil)
		}
	}
	return true
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
			leaf, err := ParseArtifact(page[i].Leaf)
			if err != nil {
				return fmt.Errorf("entry %d: %w", n, err)
			}
			if leaf.Type == TypeRestored {
				clear(a.last) // the records are those of the backup
			}
			ref, ok := blinded(leaf.Payload.Record, recordPrefix)
			if !ok {
				continue
			}
			s := store.Subject(ref)
			last := a.last[s]
			if last.take(n, &leaf) {
				a.last[s] = last
			}
			if o, err := ParseOpening(leaf, page[i].Opening); err == nil {
				if _, known := a.since[o.Operation]; !known {
					a.since[o.Operation] = store.InstantOf(leaf.EmittedAt)
				}
			}
		}
		a.progress(&a.found)
	}
}

func (a *auditor) readRecords(ctx context.Context, search store.Searcher) error {
	q := store.Query{Limit: store.MaxSearchLimit}
	for {
		page, err := search.Search(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Records {
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

// reserved begins the operations of this module's own records, about which there is no
// evidence.
const reserved = "semel."

func (a *auditor) record(ctx context.Context, rec *semel.Record) error {
	if strings.HasPrefix(rec.ID.Operation, reserved) {
		return nil
	}
	a.found.Records++
	s := a.log.Subject(rec.ID)
	last, known := a.last[s]
	since, logged := a.since[rec.ID.Operation]
	switch {
	case known:
		a.found.Compared++
		last.seen = true
		a.last[s] = last
		if a.says(&last, rec) {
			return nil
		}
	case !logged || rec.CreatedAt < since:
		a.found.Unlogged++
		return nil
	}
	return a.again(ctx, s, rec.ID)
}

// says reports whether the record is what an entry says. An entry by another format says
// nothing.
func (a *auditor) says(last *lastEntry, rec *semel.Record) bool {
	content := a.log.content(rec, OutcomeDigest(rec))
	format, _, _ := strings.Cut(content, "_")
	return !strings.HasPrefix(last.content, format+"_") || last.content == content
}

// again looks at a record that wasn't as the log said, until neither changes meanwhile, and
// adds what is wrong with it.
func (a *auditor) again(ctx context.Context, s store.Subject, id semel.ID) error {
	for {
		last, before, numbers, err := a.about(ctx, s)
		if err != nil {
			return err
		}
		rec, err := a.log.store.Get(ctx, id)
		switch {
		case errors.Is(err, semel.ErrNotFound):
			rec = &semel.Record{}
		case err != nil:
			return err
		}
		_, _, later, err := a.about(ctx, s)
		switch {
		case err != nil:
			return err
		case later != numbers: // it has just changed
			continue
		}
		f := AuditFault{Record: id.Encode(), Ref: recordPrefix + keyedDigest(s).String(), Tenant: id.Tenant, Operation: id.Operation, Key: id.Key}
		if numbers > 0 {
			f.Entry = &last.n
		}
		switch {
		case rec.State == 0 || numbers > 0 && a.says(&last, rec):
			return nil // it was purged meanwhile, or has changed with its evidence
		case last.content == "":
			f.Kind = RecordUnknown
		case slices.Contains(before, a.log.content(rec, OutcomeDigest(rec))):
			f.Kind = RecordOlder
		default:
			f.Kind = RecordChanged
		}
		a.fault(f)
		return nil
	}
}

// about reads what the log says about a record: last, and what it was after the changes
// before. The number of entries tells whether there are more the next time.
func (a *auditor) about(ctx context.Context, s store.Subject) (last lastEntry, before []string, numbers int, err error) {
	// This numbers what was written, so that it is found.
	if _, err := a.log.store.ReadEvidence(ctx, a.found.Entries, 1); err != nil {
		return last, nil, 0, err
	}
	all, err := (&Reader{store: a.log.store}).Find(ctx, s)
	if err != nil {
		return last, nil, 0, err
	}
	for _, n := range all {
		leaf, _, err := a.entry(ctx, n)
		if err != nil {
			return last, nil, 0, err
		}
		if leaf.Payload.Content != "" && last.content != "" && leaf.Payload.Content != last.content {
			before = append(before, last.content)
		}
		last.take(n, &leaf)
	}
	return last, before, len(all), nil
}

// entry reads one entry. Its opening may be erased.
func (a *auditor) entry(ctx context.Context, n uint64) (leaf Artifact, o Opening, err error) {
	en, err := a.log.store.ReadEvidence(ctx, n, 1)
	if err == nil && len(en) == 0 {
		err = errors.New("it is not there any more")
	}
	if err == nil {
		leaf, err = ParseArtifact(en[0].Leaf)
	}
	if err != nil {
		return leaf, o, fmt.Errorf("evidence: entry %d: %w", n, err)
	}
	if en[0].Opening != nil {
		o, err = ParseOpening(leaf, en[0].Opening)
	}
	return leaf, o, err
}

// missing adds the records that the log tells of and that the search didn't find. Whatever
// was written since has entries of its own.
func (a *auditor) missing(ctx context.Context) error {
	now, err := a.log.store.Now(ctx)
	if err != nil {
		return err
	}
	for s, last := range a.last {
		if last.seen || last.purged || last.until != 0 && now.Add(clockMargin) >= last.until {
			continue
		}
		newest, _, _, err := a.about(ctx, s)
		if err != nil {
			return err
		}
		if newest.n != last.n || newest.purged {
			continue
		}
		_, o, err := a.entry(ctx, last.n)
		if err != nil {
			return err
		}
		a.fault(AuditFault{
			Kind: RecordMissing, Ref: recordPrefix + keyedDigest(s).String(), Tenant: o.Tenant, Operation: o.Operation, Key: o.IdempotencyKey, Entry: &last.n,
		})
	}
	slices.SortFunc(a.found.Faults, func(x, y AuditFault) int { return cmp.Compare(x.Ref, y.Ref) })
	return nil
}

func (a *auditor) fault(f AuditFault) {
	if a.found.Found++; len(a.found.Faults) < maxAuditFaults {
		a.found.Faults = append(a.found.Faults, f)
	}
}
