package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/semelhq/semel"
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
