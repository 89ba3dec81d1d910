package ids_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// falters is a store that doesn't answer about commands for a while.
type falters struct {
	*memstore.Store
	away atomic.Bool
}

func (f *falters) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if f.away.Load() && w.Record.ID.Operation != ids.MessageOperation {
		return nil, false, errors.New("no answer")
	}
	return f.Store.Apply(ctx, w)
}

// TestAMessageKeepsItsCommand, also if nobody knows what became of it: read in another way it brings
// no second one.
func TestAMessageKeepsItsCommand(t *testing.T) {
	st := &falters{Store: memstore.New()}
	keys, err := evidence.GenerateKeys("shop.example")
	must(t, err)
	log, err := evidence.New(st, keys, nil)
	must(t, err)
	engine, err := semel.New(st, &semel.Options{StoreTimeout: 200 * time.Millisecond, Witness: log})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(log.Close(context.Background()), engine.Close(context.Background()))) })
	var ran []string
	refund := func(_ context.Context, _ semel.Execution, d *ids.Derivation) (semel.Result, error) {
		ran = append(ran, string(d.Command.Args))
		st.away.Store(true) // while its outcome is recorded
		return ids.Done("refunded", nil)
	}
	bindings := &ids.Bindings{Handlers: map[string]ids.Handler{"refund": refund}}
	reg, err := ids.NewRegistry([]ids.Entry{{Entity: "order", Action: "refund", Handler: ids.HandlerEntry{Func: "refund"}}}, ids.LoadOptions{Bindings: bindings})
	must(t, err)
	g, err := ids.New(engine, ids.Options{Registry: reg, Bindings: bindings})
	must(t, err)
	read := func(args string) (*ids.Response, error) {
		var c ids.Command
		must(t, json.Unmarshal([]byte(`{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"refund"},"args":`+args+`,"trace":{"message_id":"wamid.1","phone_number_id":"1"}}`), &c))
		return g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}, c)
	}
	if _, err := read(`{"amount":10}`); !errors.Is(err, semel.ErrUnknown) {
		t.Fatalf("the first delivery gets %v", err)
	}
	st.away.Store(false)
	if r, err := read(`{"amount":100}`); err != nil || r.Decision != ids.ConflictRejected || !slices.Equal(ran, []string{`{"amount":10}`}) {
		t.Errorf("ran with %q; the second delivery gets %+v, %v", ran, r, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
