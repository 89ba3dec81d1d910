package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/worth"
	"github.com/semelhq/semel/store"
)

// BenchmarkDue looks for a page of what is due among many records: spread over a day,
// and due in one second, where the index has the most to tell apart.
func BenchmarkDue(b *testing.B) {
	const limit = 256
	for _, n := range []int{1_000, 100_000} {
		for _, spread := range []time.Duration{time.Second, 24 * time.Hour} {
			b.Run(fmt.Sprintf("%d records within %v", n, spread), func(b *testing.B) {
				s := New()
				now, _ := s.Now(context.Background())
				for i := range n {
					rec := semel.Record{ID: semel.ID{Operation: "o", Key: strconv.Itoa(i)}, Revision: store.Revision{1}, NextAt: now.Add(rand.N(spread))}
					if _, ok, err := s.Apply(context.Background(), store.Write{Record: new(rec)}); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
				until := now.Add(spread)
				for b.Loop() {
					page, err := s.Due(context.Background(), store.DueQuery{Until: until, Limit: limit})
					if err != nil || len(page.Records) != limit {
						b.Fatal(len(page.Records), err)
					}
				}
			})
		}
	}
}

// BenchmarkMaxPart shows what a list in parts is worth, against one in a piece, to a record
// that is due at another time than before, among a million.
func BenchmarkMaxPart(b *testing.B) {
	const records = 1_000_000
	due := func(n int64) *semel.Record {
		return &semel.Record{ID: semel.ID{Key: strconv.FormatInt(n, 10)}, NextAt: store.Instant(n*7919%records + 1)}
	}
	var parts dueIndex
	var whole []*semel.Record
	for n := range int64(records) {
		parts.add(due(n))
		whole = append(whole, due(n))
	}
	slices.SortFunc(whole, func(a, b *semel.Record) int { return dueAt(a).compare(dueAt(b)) })
	at := func(rec *semel.Record) int {
		i, _ := slices.BinarySearchFunc(whole, dueAt(rec), func(rec *semel.Record, p place) int { return dueAt(rec).compare(p) })
		return i
	}
	worth.Show(b, 1, func(n int64) {
		parts.add(due(n + records))
		parts.remove(due(n + records))
	}, func(n int64) {
		rec := due(n + records)
		whole = slices.Insert(whole, at(rec), rec)
		whole = slices.Delete(whole, at(rec), at(rec)+1)
	})
}
