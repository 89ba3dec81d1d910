package lookup

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
)

// inLog finds calls by their names in the evidence log: even by ids of duplicates and of
// refused deliveries, and after their records are gone. If the log can't be read, people still
// get the records, but the search isn't complete.
func (s *search) inLog(ctx context.Context) (whole bool, err error) {
	if s.Log == nil {
		return false, nil
	}
	err = s.entries(ctx)
	switch {
	case errors.Is(err, evidence.ErrEmpty):
		return true, nil
	case err != nil && ctx.Err() == nil:
		s.at.flawed = true
		return false, nil
	}
	return err == nil, err
}

// entries reads the entries with the text as a name, as far as a page goes.
func (s *search) entries(ctx context.Context) error {
	tenant := s.LogTenant
	if s.Tenant != nil {
		tenant = *s.Tenant
	}
	reader, err := s.Log.Reader(ctx)
	if err != nil {
		return err
	}
	numbers, err := reader.Find(ctx, s.Log.Name(tenant, s.text))
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, n := range numbers {
		if s.budget.Spent { // very many entries have the name
			s.at.flawed = true
			return nil
		}
		kept, err := reader.Entry(ctx, n)
		if err != nil {
			return err
		}
		s.budget.Spend(len(kept.Leaf) + len(kept.Opening))
		leaf, err := evidence.ParseArtifact(kept.Leaf)
		if err != nil {
			return err
		}
		if done[leaf.Payload.Record] || kept.Opening == nil {
			continue // an erased opening doesn't say what it is about
		}
		done[leaf.Payload.Record] = true
		opening, err := evidence.ParseOpening(leaf, kept.Opening)
		if err != nil {
			return err
		}
		if err := s.about(ctx, &leaf, &opening); err != nil {
			return err
		}
	}
	return nil
}

// about adds the record of an entry, or notes that the record is gone. The entry has the
// blinded name of the record, and the caller, who may not own the key.
func (s *search) about(ctx context.Context, leaf *evidence.Artifact, o *evidence.Opening) error {
	is := func(id store.ID) bool {
		subject := s.Log.Subject(id)
		return strings.HasSuffix(leaf.Payload.Record, hex.EncodeToString(subject[:]))
	}
	id := store.ID{Tenant: o.Tenant, Principal: o.Principal, Operation: o.Operation, Key: o.IdempotencyKey}
	if leaf.Payload.SequenceRef != "" {
		id.Key += store.ScopeMark + leaf.Payload.Sequence
	}
	for _, id.Principal = range []string{o.Principal, ""} {
		if !is(id) {
			continue
		}
		rec, err := s.Records.Lookup(ctx, id)
		if err == nil {
			s.take(&rec, byEvidence)
		} else if errors.Is(err, semel.ErrNotFound) {
			s.answer.Gone, err = append(s.answer.Gone, id), nil
		}
		return err
	}
	// Its key has a scope, which the entry lacks.
	page, err := s.Records.Search(ctx, store.Query{Tenant: &o.Tenant, Operation: o.Operation, Key: id.Key, Limit: store.MaxSearchLimit})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(page.Records, func(rec store.Record) bool { return is(rec.ID) }); i >= 0 {
		s.take(&page.Records[i], byEvidence)
		return nil
	}
	id.Principal = o.Principal
	s.answer.Gone = append(s.answer.Gone, id)
	return nil
}
