package pebblestore

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// About the sizes of what package evidence writes.
const (
	benchLeaf    = 470
	benchOpening = 270
)

// BenchmarkWithEvidence is two writes of new records, as a claim and its completion,
// by 256 callers: without evidence, with an entry each, and with that while the
// whole log is read from its beginning without a pause.
func BenchmarkWithEvidence(b *testing.B) {
	b.Run("none", func(b *testing.B) { benchWrites(b, false, false) })
	b.Run("an entry each", func(b *testing.B) { benchWrites(b, true, false) })
	b.Run("an entry each, while the log is exported", func(b *testing.B) { benchWrites(b, true, true) })
}

func benchWrites(b *testing.B, evidence, export bool) {
	s := mustOpen(b, b.TempDir(), nil)
	defer s.Close()
	data := newAnswers()
	ctx := b.Context()
	write := func(i int, rec *semel.Record, expect store.Revision) error {
		w := store.Write{Record: rec, Expect: expect}
		if evidence {
			at := i * 7919 % (len(data) - benchLeaf - benchOpening)
			w.Evidence = []store.Entry{{
				Leaf: data[at : at+benchLeaf], Opening: data[at+benchLeaf : at+benchLeaf+benchOpening], Subject: testSubject(rec.ID),
			}}
		}
		_, _, err := s.Apply(ctx, w)
		return err
	}
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	read := 0
	if export {
		reader.Go(func() {
			for from := uint64(0); reading.Err() == nil; {
				list, err := s.ReadEvidence(reading, from, 1000)
				if err != nil && reading.Err() == nil {
					b.Error(err)
					return
				}
				read += len(list)
				if from += uint64(len(list)); len(list) == 0 {
					from = 0
				}
			}
		})
	}
	b.ReportAllocs()
	concurrently(b, benchCallers, func(i int) error {
		id := testID("key " + strconv.Itoa(i))
		claim := semel.Record{ID: id, State: semel.Processing, Attempt: 1, Fence: int64(i), Revision: store.Revision(testSubject(id)), NextAt: testEpoch}
		if err := write(i, &claim, store.Revision{}); err != nil {
			return err
		}
		done := claim
		done.State, done.Disposition, done.Result.Data = semel.Completed, semel.DispositionCompleted, data.of(i)
		done.Revision[0]++
		return write(i, &done, claim.Revision)
	})
	stop()
	reader.Wait()
	if export {
		b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "exported/s")
	}
}
