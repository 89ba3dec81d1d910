package upgrade

import (
	"context"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// recordedErasures are lists of what was erased, each that of a program which has erased person.
var recordedErasures = []string{"testdata/erased-1"}

var (
	person     = semel.ID{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "anna@example.com"}
	erasedCell = semel.ID{Operation: "semel.erased", Key: "erased"}
)

// A program of today forgets what one of an earlier time has erased.
func TestErasuresOfEarlierProgramsAreKnown(t *testing.T) {
	for _, file := range recordedErasures {
		synctest.Test(t, func(t *testing.T) {
			if _, err := os.Stat(file); os.IsNotExist(err) && *add {
				recordErasure(t, file)
			}
			text, err := os.ReadFile(file)
			must(t, err)
			data, err := hex.DecodeString(strings.TrimSpace(string(text)))
			must(t, err)
			st := memstore.New()
			_, _, err = store.NewCell(st, erasedCell).Swap(t.Context(), store.CellValue{}, store.CellValue{Data: data, KeepFor: time.Hour})
			must(t, err)
			var forgets []bool
			e, err := semel.New(st, &semel.Options{Events: &semel.Events{Erased: func(ev semel.Erased) {
				other := person
				other.Key = "other"
				forgets = []bool{ev.Includes(person, time.Time{}), ev.Includes(person, time.Now().Add(time.Hour)), ev.Includes(other, time.Time{})}
			}}})
			must(t, err)
			done := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { defer close(done); _ = e.Run(ctx, time.Second) }()
			pass(time.Second)
			cancel()
			<-done
			if len(forgets) != 3 || !forgets[0] || forgets[1] || forgets[2] {
				t.Errorf("%s: what it forgets of the person, of their later call, and of another: %v", file, forgets)
			}
		})
	}
}

// recordErasure writes what today's program leaves.
func recordErasure(t *testing.T, file string) {
	st := memstore.New()
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: person.Operation}}})
	must(t, err)
	ans, err := e.Begin(t.Context(), semel.Call{Tenant: person.Tenant, Principal: person.Principal, Operation: person.Operation, Key: person.Key})
	must(t, err)
	must(t, ans.Attempt.Complete(t.Context(), semel.Result{}))
	must(t, e.Purge(t.Context(), person, semel.Removal{Reason: "asked for", EraseEvidence: true}))
	v, err := store.NewCell(st, erasedCell).Load(t.Context())
	must(t, err)
	must(t, os.WriteFile(file, []byte(hex.EncodeToString(v.Data)+"\n"), 0o644))
}
