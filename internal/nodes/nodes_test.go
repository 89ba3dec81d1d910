package nodes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A list has room for so many nodes; the ones with the oldest words leave it.
func TestAListIsBounded(t *testing.T) {
	st := memstore.New()
	var last *Running
	for i := range most + 50 {
		last = NewRunning(st, fmt.Sprint("id-", i))
		last.Announce(fmt.Sprint("node-", i), "v1")
		if err := last.Stay(t.Context(), 1000+int64(i), false); err != nil {
			t.Fatal(err)
		}
	}
	list, err := last.List(t.Context())
	if err != nil || len(list) != most || list["id-49"].Name != "" || list["id-50"] != (Node{"node-50", "v1", 1050, 1050}) {
		t.Errorf("%v, %d nodes, %+v", err, len(list), list["id-50"])
	}
	// An hour after the last word of all others it is alone, and gone when it ends, once.
	for _, at := range []int64{1000 + most + 50 + 3601, 1000 + most + 50 + 3602} {
		if err := last.Stay(t.Context(), at, false); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := last.List(t.Context()); len(list) != 1 || list["id-305"].Started != 1305 {
		t.Errorf("%+v", list)
	}
	for range 2 {
		if err := last.Stay(t.Context(), 9000, true); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := last.List(t.Context()); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// A damaged list begins anew, and one of a newer program stays as it is.
func TestAListOfSomebodyElse(t *testing.T) {
	for data, newer := range map[string]bool{`{"nodes":`: false, `{"nodes":{"a":{"name":"a"}},"leader":"a"}`: true} {
		st := memstore.New()
		r := NewRunning(st, "b")
		r.Announce("b-1", "v1")
		if err := r.cell.Change(t.Context(), func(store.CellValue) (store.CellValue, error) {
			return store.CellValue{Data: []byte(data), KeepFor: time.Hour}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.Stay(t.Context(), 1000, false); errors.Is(err, form.ErrNewer) != newer {
			t.Errorf("%s: %v", data, err)
		}
		value, err := r.cell.Load(t.Context())
		if err != nil || (string(value.Data) == data) != newer {
			t.Errorf("%s is now %s, %v", data, value.Data, err)
		}
	}
}
