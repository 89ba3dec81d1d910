package enginetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func cellID(name string) semel.ID { return semel.ID{Operation: "semel.cell", Key: name} }

func TestCell(t *testing.T) {
	ctx := context.Background()
	st := memstore.New()
	defer st.Close()
	cell := store.NewCell(st, cellID("test"))
	first, err := cell.Load(ctx)
	if err != nil || first.Data != nil || !first.Revision.IsZero() {
		t.Fatalf("an empty cell holds %+v, %v", first, err)
	}
	second, ok, err := cell.Swap(ctx, first, store.CellValue{Data: []byte("a")})
	if err != nil || !ok || string(second.Data) != "a" || second.At == 0 {
		t.Fatalf("%+v, %v, %v", second, ok, err)
	}
	t.Run("a swap of what is no longer there changes nothing and says what is", func(t *testing.T) {
		cur, ok, err := cell.Swap(ctx, first, store.CellValue{Data: []byte("b")})
		if err != nil || ok || string(cur.Data) != "a" || cur.Revision != second.Revision {
			t.Errorf("%+v, %v, %v", cur, ok, err)
		}
	})
	t.Run("another name is another cell", func(t *testing.T) {
		other := store.NewCell(st, cellID("other"))
		if v, err := other.Load(ctx); err != nil || v.Data != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("what is too large is refused", func(t *testing.T) {
		if _, _, err := cell.Swap(ctx, second, store.CellValue{Data: make([]byte, 1<<20+1)}); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Error(err)
		}
	})
	t.Run("one that wakes somebody is due, and one that is kept for a while is purged", func(t *testing.T) {
		lane := store.NewCell(st, cellID("lane"))
		now, err := st.Now(ctx)
		must(t, err)
		wake := store.CellValue{Data: []byte("a"), Wake: &semel.Message{ID: "wake", Destination: "d", NextAt: now.Add(time.Minute)}, KeepFor: time.Second}
		v, ok, err := lane.Swap(ctx, store.CellValue{}, wake)
		if err != nil || !ok || v.Wake == nil || v.Wake.NextAt != wake.Wake.NextAt || v.KeepFor != time.Second {
			t.Fatal(v, ok, err)
		}
		due := func(after time.Duration) []semel.Record {
			p, err := st.Due(ctx, store.DueQuery{Until: now.Add(after), Limit: 9})
			must(t, err)
			return p.Records
		}
		if got := due(time.Hour); len(due(59*time.Second)) != 0 || len(got) != 1 || !got[0].Unfinished() {
			t.Fatalf("%+v", got)
		}
		_, ok, err = lane.Swap(ctx, v, store.CellValue{Data: []byte("b"), KeepFor: time.Second})
		if got := due(time.Minute); err != nil || !ok || len(got) != 1 || got[0].Unfinished() || !got[0].Expired(now.Add(time.Minute)) {
			t.Fatalf("%+v, %v, %v", got, ok, err)
		}
	})
	t.Run("no call reaches it", func(t *testing.T) {
		if _, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "semel.cell"}}}); err == nil || !strings.Contains(err.Error(), "semel.") {
			t.Error(err)
		}
	})
}

func TestCellHasOneWinner(t *testing.T) {
	ctx := context.Background()
	st := memstore.New()
	defer st.Close()
	const nodes, rounds = 8, 50
	var wg sync.WaitGroup
	for range nodes {
		wg.Go(func() {
			cell := store.NewCell(st, cellID("counter"))
			for done := 0; done < rounds; {
				v, err := cell.Load(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok, err := cell.Swap(ctx, v, store.CellValue{Data: append(v.Data[:len(v.Data):len(v.Data)], 1)}); err != nil {
					t.Error(err)
					return
				} else if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	cell := store.NewCell(st, cellID("counter"))
	if v, err := cell.Load(ctx); err != nil || len(v.Data) != nodes*rounds {
		t.Errorf("%d changes are left of %d, %v", len(v.Data), nodes*rounds, err)
	}
}
