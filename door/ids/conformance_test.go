package ids_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/check"
	kit "github.com/semelhq/semel/internal/check/ids"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// kitRegistry declares the commands of the conformance kit.
const kitRegistry = `
version: 1
commands:
  - {entity: idstest, action: charge, caller_key: true, per_record: {per_second: 1000, burst: 1000}, evidence: durable, handler: {url: PROVIDER}}
  - {entity: idstest, action: slow, per_record: {per_second: 1000, burst: 1000}, handler: {url: PROVIDER, timeout: 1m}}
  - {entity: idstest, action: confirmed, confirmation: {ttl: 1m}, per_record: {per_second: 1000, burst: 1000}, handler: {url: PROVIDER}}
`

// witnessed is an engine on a store, and the evidence log that it writes there.
func witnessed(t *testing.T, store semel.Store) (*semel.Engine, *evidence.Log) {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/commands")
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(store, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(store, &semel.Options{Witness: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(log.Close(ctx), engine.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return engine, log
}

// implementation is a gateway with the commands of the kit, and the evidence of them.
type implementation struct {
	gateway  http.Handler
	provider net.Listener
	evidence func(ctx context.Context, commandID string) ([]map[string]any, error)
}

// implement makes a gateway on a store.
func implement(t *testing.T, store semel.Store) implementation {
	t.Helper()
	engine, log := witnessed(t, store)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := ids.Load([]byte(strings.ReplaceAll(kitRegistry, "PROVIDER", "http://"+l.Addr().String())), ids.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := ids.New(engine, ids.Options{Registry: registry, Identify: func(*http.Request) (ids.Caller, error) {
		return ids.Caller{Tenant: "acme", Principal: "alice"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return implementation{gateway, l, func(ctx context.Context, commandID string) ([]map[string]any, error) {
		return shown(ctx, log, commandID)
	}}
}

// judge judges an implementation by the kit.
func (i implementation) judge(t *testing.T) *check.Report {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/v1/", i.gateway)
	mux.HandleFunc("/evidence", func(w http.ResponseWriter, r *http.Request) {
		list, err := i.evidence(r.Context(), r.FormValue("command"))
		if err != nil {
			t.Error(err)
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	report, err := kit.Kit.Run(t.Context(), check.Options{
		URL: srv.URL + "/v1/commands", Patience: 3 * time.Second, Listener: i.provider,
		Flags: map[string]*string{"tenant": new("acme"), "actor": new("alice"), "evidence": new("/evidence?command={command_id}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// conform wants each sentence kept.
func conform(t *testing.T, store semel.Store) {
	t.Helper()
	report := implement(t, store).judge(t)
	for _, v := range report.Verdicts {
		if v.Outcome != check.Kept {
			t.Errorf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
		}
	}
	if len(report.Verdicts) != 18 {
		t.Errorf("%d verdicts", len(report.Verdicts))
	}
}

// shown is what an auditor with the openings is shown of a command.
func shown(ctx context.Context, log *evidence.Log, commandID string) (list []map[string]any, err error) {
	if err := log.Integrate(ctx); err != nil {
		return nil, err
	}
	r, err := log.Reader(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := r.Find(ctx, log.Name("acme", commandID))
	for _, n := range numbers {
		en, err := r.Entry(ctx, n)
		if err != nil {
			return nil, err
		}
		leaf, err := evidence.ParseArtifact(en.Leaf)
		if err != nil {
			return nil, err
		}
		o, err := evidence.ParseOpening(leaf, en.Opening)
		if err != nil {
			return nil, err
		}
		ev := map[string]any{
			"decision": leaf.Payload.Decision, "command_id": o.CommandID, "idempotency_key": o.IdempotencyKey,
			"executed": leaf.Payload.Executed, "fingerprint": leaf.Payload.Fingerprint, "presented_fingerprint": leaf.Payload.Presented,
		}
		if o.OutcomeSHA256 != "" {
			ev["outcome_ref"] = "sha256:" + o.OutcomeSHA256
		}
		list = append(list, ev)
	}
	return list, err
}

func TestConformanceInMemory(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-VIII.1", "IDS-VIII.5", "IDS-VIII.6", "IDS-IX.1", "IDS-IX.2", "IDS-IX.3", "IDS-IX.4", "IDS-X.1", "IDS-X.2", "IDS-X.3",
		"IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XII.4", "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3", "IDS-XIII.4", "IDS-XIII.5", "IDS-XIII.6")
	store := memstore.New()
	t.Cleanup(func() { // after the gateway's, which still writes
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	conform(t, store)
}

func TestConformanceEmbedded(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-VIII.1", "IDS-VIII.5", "IDS-VIII.6", "IDS-IX.1", "IDS-IX.2", "IDS-IX.3", "IDS-IX.4", "IDS-X.1", "IDS-X.2", "IDS-X.3",
		"IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XII.4", "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3", "IDS-XIII.4", "IDS-XIII.5", "IDS-XIII.6")
	store, err := pebblestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	conform(t, store)
}
