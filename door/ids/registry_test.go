package ids

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

var update = flag.Bool("update", false, "write the golden files")

// bindings are the functions of the registries in testdata.
func bindings() *Bindings {
	handler := func(context.Context, semel.Execution, *Derivation) (semel.Result, error) { return semel.Result{}, nil }
	return &Bindings{
		Handlers: map[string]Handler{"a": handler, "cancelOrder": handler, "refund": handler, "showOrder": handler, "touchCart": handler},
		StepUps:  map[string]func(context.Context, semel.Call) error{"totp": func(context.Context, semel.Call) error { return nil }},
		Reconcilers: map[string]semel.Reconciler{
			"ask":         func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil },
			"askProvider": func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil },
		},
		Compensators: map[string]semel.Compensator{
			"undo":   func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return semel.Result{}, nil },
			"refund": func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return semel.Result{}, nil },
		},
		Authorize: func(context.Context, *Entry, semel.Call, semel.Record) error { return nil },
	}
}

// orders is the registry of testdata/good.
func orders(t testing.TB) *Registry {
	t.Helper()
	data, err := os.ReadFile("testdata/good/orders.yaml")
	if err != nil {
		t.Fatal(err)
	}
	reg, err := Load(data, LoadOptions{File: "orders.yaml", Bindings: bindings()})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// lookup finds a declaration of orders.
func lookup(t testing.TB, entity, action string) *Entry {
	t.Helper()
	e, ok := orders(t).Lookup(entity, action)
	if !ok {
		t.Fatalf("there is no %s.%s", entity, action)
	}
	return e
}

// TestBadRegistries reads registries that are wrong. Every problem of a file is in
// the golden file beside it, with its line and column.
func TestBadRegistries(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-VI.2", "IDS-VI.4", "IDS-VII.4", "IDS-VIII.3", "IDS-VIII.4", "IDS-XI.1")
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+" gives the problems recorded", func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			reg, err := Load(data, LoadOptions{File: filepath.Base(file), Bindings: bindings()})
			problems, ok := errors.AsType[Problems](err)
			if !ok || len(problems) == 0 || reg != nil {
				t.Fatalf("the error is %T %v", err, err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".problems", problems.Error()+"\n")
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 {
					t.Errorf("%q has no place", p.Message)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("a password is shown")
			}
		})
	}
}

func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got:\n%s\nwant, as in %s:\n%s", text, file, want)
	}
}

// wantEvidence is the level that an entry gets that says none.
func wantEvidence(e *Entry) semel.EvidenceLevel {
	if e.Financial || e.Critical {
		return semel.EvidenceDurable
	}
	return semel.EvidenceDecisions
}

func TestDefaults(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-VI.2", "IDS-VIII.3")
	t.Run("a mutation of which nothing is said is I1, kept for a day and evident", func(t *testing.T) {
		e := lookup(t, "order", "cancel")
		if e.Class != semel.Strict || e.Window != Duration(24*time.Hour) || e.Evidence != wantEvidence(e) {
			t.Errorf("%s, %s, %s", e.Class, e.Window, e.Evidence)
		}
	})
	t.Run("evidence of a financial or critical command is durable before the answer", func(t *testing.T) {
		clause.Proves(t, "IDS-XII.6")
		e := &Entry{Entity: "x", Action: "y"}
		if e.fill(); e.Evidence != "decisions" {
			t.Errorf("of another command it is %s", e.Evidence)
		}
		for _, e := range []*Entry{{Financial: true}, {Critical: true}} {
			if e.fill(); e.Evidence != "durable" {
				t.Errorf("financial %v, critical %v: %s", e.Financial, e.Critical, e.Evidence)
			}
		}
	})
	t.Run("what changes nothing is I0", func(t *testing.T) {
		if e := lookup(t, "order", "show"); e.Class != semel.ReadOnly {
			t.Errorf("class %s", e.Class)
		}
	})
	t.Run("a financial command is kept for seven days", func(t *testing.T) {
		if e := lookup(t, "payment", "capture"); e.Window != Duration(7*24*time.Hour) {
			t.Errorf("window %s", e.Window)
		}
	})
}

func TestOperations(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-VII.6", "IDS-XI.1")
	reg := orders(t)
	ops, err := reg.Operations(bindings())
	if err != nil || len(ops) != len(reg.Commands) {
		t.Fatalf("%d operations, %v", len(ops), err)
	}
	byName := map[string]semel.Operation{}
	for _, op := range ops {
		byName[op.Name] = op
	}
	t.Run("shields, effects, reconciler and compensation come with class I3", func(t *testing.T) {
		op := byName["payment.capture"]
		if op.Class != semel.Shielded || !slices.Equal(op.Shields, []semel.Shield{"S1", "S3", "S4"}) ||
			!slices.Equal(op.Effects, []string{"provider.capture"}) || op.Reconcile == nil || op.ReconcileEvery != 30*time.Second ||
			op.Compensation != "payment.refund" || op.Compensate == nil || op.OnFailure != semel.RetryFailure || op.Evidence != semel.EvidenceDurable {
			t.Errorf("%+v", op)
		}
	})
	t.Run("several callers for one actor share keys in the tenant and are authorised", func(t *testing.T) {
		if op := byName["order.cancel"]; op.Share != semel.ShareTenant || op.Authorize == nil {
			t.Errorf("share %q", op.Share)
		}
		if op := byName["cart.touch"]; op.Share == semel.ShareTenant {
			t.Error("a command that is bound to its actor is shared")
		}
	})
	t.Run("a confirmation has its ttl and its further proof", func(t *testing.T) {
		c := byName["order.cancel"].Confirmation
		if c == nil || c.TTL != 2*time.Minute || c.StepUp == nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a function that is not there is an error", func(t *testing.T) {
		for _, strip := range []func(*Bindings){
			func(b *Bindings) { delete(b.Handlers, "cancelOrder") },
			func(b *Bindings) { delete(b.StepUps, "totp") },
			func(b *Bindings) { delete(b.Reconcilers, "askProvider") },
			func(b *Bindings) { delete(b.Compensators, "refund") },
			func(b *Bindings) { b.Authorize = nil },
		} {
			b := bindings()
			strip(b)
			if _, err := reg.Operations(b); err == nil {
				t.Error("no error")
			}
		}
	})
}

func TestRights(t *testing.T) {
	e := lookup(t, "order", "cancel")
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"a caller with the right may execute", e.MayExecute([]string{"x", "orders:cancel"}), true},
		{"one without may not", e.MayExecute([]string{"orders:read"}), false},
		{"a caller with the right may read", e.MayRead([]string{"orders:read"}), true},
		{"one without may not", e.MayRead(nil), false},
		{"a caller with an acting right may act for another", e.MayAct([]string{"orders:retry"}), true},
		{"one without may not", e.MayAct([]string{"orders:cancel"}), false},
		{"nobody may act where nothing is declared", lookup(t, "payment", "capture").MayAct([]string{""}), false},
		{"everybody may execute where nothing is declared", lookup(t, "order", "show").MayExecute(nil), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got %v", c.got)
			}
		})
	}
}

func TestRedaction(t *testing.T) {
	e := lookup(t, "order", "cancel")
	outcome := []byte(`{"id":9007199254740993,"refund":{"iban":"DE1","sum":"1"},"items":[{"note":"n","sku":"a"},{"sku":"b"}]}`)
	for _, c := range []struct {
		name, want string
		rights     []string
	}{
		{"hides what the reader may not see, and keeps numbers", `{"id":9007199254740993,"items":[{"note":"[redacted]","sku":"a"},{"sku":"b"}],"refund":{"iban":"[redacted]","sum":"1"}}`, nil},
		{"shows what his rights let him see", `{"id":9007199254740993,"items":[{"note":"[redacted]","sku":"a"},{"sku":"b"}],"refund":{"iban":"DE1","sum":"1"}}`, []string{"payments:read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := e.RedactFor(outcome, c.rights)
			if !ok || string(got) != c.want {
				t.Errorf("got %s, %v", got, ok)
			}
		})
	}
	t.Run("hides all of what is no JSON", func(t *testing.T) {
		if got, ok := e.RedactFor([]byte("iban=DE1"), nil); ok || got != nil {
			t.Errorf("got %s, %v", got, ok)
		}
	})
	t.Run("leaves an outcome alone where nothing is hidden", func(t *testing.T) {
		if got, ok := lookup(t, "payment", "capture").RedactFor(outcome, nil); !ok || !bytes.Equal(got, outcome) {
			t.Errorf("got %s, %v", got, ok)
		}
	})
}

func FuzzLoad(f *testing.F) {
	for _, part := range []string{"good", "bad"} {
		files, _ := filepath.Glob("testdata/" + part + "/*.yaml")
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reg, err := Load(data, LoadOptions{})
		if problems, ok := errors.AsType[Problems](err); err != nil && (!ok || len(problems) == 0) || (reg == nil) == (err == nil) {
			t.Fatalf("%v, %v", reg, err)
		}
		if reg != nil {
			_, _ = Derive(Command{TenantID: "t", ActorID: "a", Intent: Intent{Entity: "e", Action: "a"}})
		}
	})
}
