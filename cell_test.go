package semel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

func TestCell(t *testing.T) {
	ctx := context.Background()
	st := memstore.New()
	defer st.Close()
	cell, err := semel.NewCell(st, "test")
	if err != nil {
		t.Fatal(err)
	}
	first, err := cell.Load(ctx)
	if err != nil || first.Data != nil || !first.Revision.IsZero() {
		t.Fatalf("an empty cell holds %+v, %v", first, err)
	}
	second, ok, err := cell.Swap(ctx, first, []byte("a"))
	if err != nil || !ok || string(second.Data) != "a" || second.At == 0 {
		t.Fatalf("%+v, %v, %v", second, ok, err)
	}
	t.Run("a swap of what is no longer there changes nothing and says what is", func(t *testing.T) {
		cur, ok, err := cell.Swap(ctx, first, []byte("b"))
		if err != nil || ok || string(cur.Data) != "a" || cur.Revision != second.Revision {
			t.Errorf("%+v, %v, %v", cur, ok, err)
		}
	})
	t.Run("another name is another cell", func(t *testing.T) {
		other, err := semel.NewCell(st, "other")
		if err != nil {
			t.Fatal(err)
		}
		if v, err := other.Load(ctx); err != nil || v.Data != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("what is too large is refused", func(t *testing.T) {
		if _, _, err := cell.Swap(ctx, second, make([]byte, 1<<20)); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Error(err)
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
			cell, err := semel.NewCell(st, "counter")
			if err != nil {
				t.Error(err)
				return
			}
			for done := 0; done < rounds; {
				v, err := cell.Load(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok, err := cell.Swap(ctx, v, append(v.Data[:len(v.Data):len(v.Data)], 1)); err != nil {
					t.Error(err)
					return
				} else if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	cell, err := semel.NewCell(st, "counter")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := cell.Load(ctx); err != nil || len(v.Data) != nodes*rounds {
		t.Errorf("%d changes are left of %d, %v", len(v.Data), nodes*rounds, err)
	}
}
