package enginetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

var erasedCell = semel.ID{Operation: "semel.erased", Key: "erased"}

// eraser is an engine whose program remembers what it knows, and forgets what was erased.
type eraser struct {
	*semel.Engine
	stop func()

	mu    sync.Mutex
	known map[string]time.Time // keys that the program has noted, and when
}

// newEraser starts one whose program has noted known in an earlier life.
func newEraser(t *testing.T, st semel.Store, w semel.Witness, known map[string]time.Time) *eraser {
	t.Helper()
	e := &eraser{known: map[string]time.Time{}}
	maps.Copy(e.known, known)
	var err error
	e.Engine, err = semel.New(st, &semel.Options{Witness: w, Operations: []semel.Operation{{Name: "op", Window: time.Hour}}, Events: &semel.Events{
		Decided: func(ev semel.Decided) { e.note(ev.ID.Key, ev.At) },
		Erased: func(ev semel.Erased) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for key, at := range e.known {
				if ev.Includes(person(key), at) {
					delete(e.known, key)
				}
			}
		},
	}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx, time.Second) }()
	e.stop = func() { cancel(); <-done }
	return e
}

func person(key string) semel.ID {
	return semel.ID{Tenant: "acme", Principal: "p", Operation: "op", Key: key}
}

func (e *eraser) note(key string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[key] = at
}

func (e *eraser) deliver(t *testing.T, key string) {
	t.Helper()
	_, err := e.Do(t.Context(), semel.Call{Tenant: "acme", Principal: "p", Operation: "op", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, nil
	})
	must(t, err)
}

func (e *eraser) knows(t *testing.T, when string, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.known) != len(want) {
		t.Errorf("%s it knows %v, want %v", when, e.known, want)
	}
	for _, key := range want {
		if e.known[key].IsZero() {
			t.Errorf("%s it doesn't know %s", when, key)
		}
	}
}

const anna = "anna@example.com"

// An erasure reaches every engine of the store within seconds, and those that start later, and
// takes nothing that came after it.
func TestEveryEngineLearnsWhatWasErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := newEraser(t, st, nil, nil), newEraser(t, st, nil, nil)
		defer a.stop()
		defer b.stop()
		for _, e := range []*eraser{a, b} {
			e.deliver(t, anna)
			e.deliver(t, "other")
		}
		late := time.Now()
		pass(5 * time.Second)
		must(t, a.Purge(t.Context(), person(anna), semel.Removal{Reason: "r", EraseEvidence: true}))
		a.knows(t, "at once", "other")
		pass(3 * time.Second)
		b.knows(t, "within seconds", "other")
		b.note(anna, late) // of a delivery that was decided before
		pass(3 * time.Second)
		b.knows(t, "of what came late", "other")
		b.deliver(t, anna) // a new call
		pass(time.Minute)
		b.knows(t, "of the next call", "other", anna)
		c := newEraser(t, st, nil, map[string]time.Time{anna: late}) // it was stopped for a day
		defer c.stop()
		pass(3 * time.Second)
		c.knows(t, "after a start")
	})
}

// The list tells nobody who was erased: it has no digest that could be found by trying names.
func TestTheListOfErasuresNamesNobody(t *testing.T) {
	for name, w := range map[string]semel.Witness{"without evidence": nil, "with evidence": &scribe{}} {
		t.Run(name, func(t *testing.T) {
			var lists [2][]byte
			for i := range lists {
				st := memstore.New()
				e := newEraser(t, st, w, nil)
				e.stop()
				e.deliver(t, anna)
				must(t, e.Purge(t.Context(), person(anna), semel.Removal{Reason: "r", EraseEvidence: true}))
				v, err := store.NewCell(st, erasedCell).Load(t.Context())
				must(t, err)
				lists[i] = v.Data
				digest := person(anna).Digest()
				for _, plain := range [][]byte{digest[:], digest[:16], sum(anna), sum(person(anna).Encode()), []byte(anna)} {
					if bytes.Contains(v.Data, plain) {
						t.Errorf("the list has %x", plain)
					}
				}
				if v.KeepFor < 30*24*time.Hour || v.KeepFor > 32*24*time.Hour {
					t.Errorf("it is kept for %v", v.KeepFor)
				}
			}
			const entry = 16
			if one, other := lists[0][len(lists[0])-entry:], lists[1][len(lists[1])-entry:]; w == nil && bytes.Equal(one, other) {
				t.Error("two installations have one digest of a person")
			}
		})
	}
}

func sum(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:16]
}

// Who can't tell what was erased forgets all that may have been: an engine without the secret, one
// that was away while more was erased than is listed, and one that doesn't know the list's form.
func TestWhoCannotTellForgetsAll(t *testing.T) {
	for name, erase := range map[string]func(t *testing.T, st *memstore.Store){
		"by a secret that it lacks": func(t *testing.T, st *memstore.Store) {
			e := newEraser(t, st, &scribe{}, nil)
			defer e.stop()
			e.deliver(t, "else")
			must(t, e.Purge(t.Context(), person("else"), semel.Removal{Reason: "r", EraseEvidence: true}))
		},
		"more than is listed": func(t *testing.T, st *memstore.Store) {
			e := newEraser(t, st, nil, nil)
			defer e.stop()
			for i := range 4100 {
				e.deliver(t, fmt.Sprint(i))
				must(t, e.Purge(t.Context(), person(fmt.Sprint(i)), semel.Removal{Reason: "r", EraseEvidence: true}))
			}
		},
		"in a newer form": func(t *testing.T, st *memstore.Store) {
			_, ok, err := store.NewCell(st, erasedCell).Swap(t.Context(), store.CellValue{}, store.CellValue{Data: []byte{2, 0}, KeepFor: time.Hour})
			if !ok {
				t.Fatal(err)
			}
			e := newEraser(t, st, nil, nil)
			defer e.stop()
			e.deliver(t, "else")
			wantCode(t, e.Purge(t.Context(), person("else"), semel.Removal{Reason: "r", EraseEvidence: true}), semel.CodeUnsupported)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				before := time.Now()
				pass(time.Second)
				erase(t, st)
				e := newEraser(t, st, nil, map[string]time.Time{anna: before, "later": time.Now().Add(time.Hour)})
				defer e.stop()
				pass(3 * time.Second)
				e.knows(t, "afterwards", "later")
			})
		})
	}
}
