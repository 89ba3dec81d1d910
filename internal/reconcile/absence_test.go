package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/store/memstore"
)

// TestACallThatIsAbsentWaits: a call that isn't found stays held for as long as that proves
// nothing, and then runs again, once.
func TestACallThatIsAbsentWaits(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	synctest.Test(t, func(t *testing.T) {
		var answers []exchange
		for range 100 {
			answers = append(answers, exchange{status: "rows", body: `{"columns":["outcome"],"rows":[]}`})
		}
		books.set(&vendor{answers: answers})
		settler, err := reconcile.New(reconcile.Settings{Source: "sql", SecretFile: secretFile(t, "postgres://books"), Query: "SELECT outcome FROM charges WHERE key = $1"})
		if err != nil {
			t.Fatal(err)
		}
		op := semel.Operation{Name: "orders.pay", Reconcile: settle.By(settler.Ask, settle.Form{Who: settler.Name()}), ReconcileEvery: time.Minute, Window: 24 * time.Hour}
		e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{op}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		runs := 0
		call := semel.Call{Operation: "orders.pay", Key: "k-1"}
		pay := func(answer error) error {
			_, err := e.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
				runs++
				return semel.Result{}, answer
			})
			return err
		}
		began := time.Now()
		if err := pay(semel.Abandoned(errors.New("the answer was lost"))); err == nil {
			t.Fatal("it isn't held")
		}
		for held := true; held; {
			<-time.After(time.Minute)
			if _, err := e.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			rec, err := e.Lookup(t.Context(), semel.ID{Operation: "orders.pay", Key: "k-1"})
			if err != nil || time.Since(began) > time.Hour {
				t.Fatal(rec, err)
			}
			if held = rec.Held; !held && rec.Settled.Who != "sql" {
				t.Errorf("settled by %+v", rec.Settled)
			}
		}
		if waited := time.Since(began); waited < settler.Absence() || waited > settler.Absence()+2*time.Minute {
			t.Errorf("it ran again after %v", waited)
		}
		if err := pay(nil); err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
		if err := pay(nil); err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

// TestWhyADatabaseGivesNoRows is told as it is.
func TestWhyADatabaseGivesNoRows(t *testing.T) {
	for status, want := range map[string]string{"silence": "in time", "refusal": "refuses", "down": "broke off"} {
		t.Run(status, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				books.set(&vendor{answers: []exchange{{status: status}}})
				settler, err := reconcile.New(reconcile.Settings{Source: "sql", SecretFile: secretFile(t, "postgres://books"), Query: "SELECT outcome FROM charges WHERE key = $1"})
				if err != nil {
					t.Fatal(err)
				}
				held := heldFor(time.Hour)
				if _, err := settler.Ask(t.Context(), &held); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "order-7") {
					t.Errorf("got %v, want %q", err, want)
				}
			})
		})
	}
}
