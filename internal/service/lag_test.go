package service

import (
	"context"
	"errors"
	"testing"

	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// counted counts the entries that are read.
type counted struct {
	store.EvidenceLog
	read int
	fail bool
}

func (c *counted) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	if c.fail {
		return nil, errors.New("the store is away")
	}
	entries, err := c.EvidenceLog.ReadEvidence(ctx, from, limit)
	c.read += len(entries)
	return entries, err
}

func TestEntriesAreCountedByReadingFew(t *testing.T) {
	log := &counted{EvidenceLog: memstore.New().Extras().Evidence}
	for n := range uint64(300) {
		for _, from := range []uint64{0, n / 2, n} {
			if got, err := entriesFrom(t.Context(), log, from); got != n-from || err != nil {
				t.Fatalf("from %d of %d there are %d, %v", from, n, got, err)
			}
		}
		if err := log.AppendEvidence(t.Context(), []store.Entry{{Leaf: []byte{byte(n)}}}); err != nil {
			t.Fatal(err)
		}
	}
	log.read = 0
	if _, err := entriesFrom(t.Context(), log, 0); err != nil || log.read > 20 {
		t.Errorf("to count 300, %d were read, %v", log.read, err)
	}
	log.fail = true
	if _, err := entriesFrom(t.Context(), log, 0); err == nil {
		t.Error("a store that is away has no end")
	}
}
