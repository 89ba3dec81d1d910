package ids_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/ids/idstest"
	"github.com/semelhq/semel/evidence"
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

// serve starts a gateway with the commands of the kit on a store.
func serve(t *testing.T, store semel.Store) idstest.Target {
	t.Helper()
	engine, log := witnessed(t, store)
	p := idstest.NewProvider(t)
	registry, err := ids.Load([]byte(strings.ReplaceAll(kitRegistry, "PROVIDER", p.URL)), ids.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := ids.New(engine, ids.Options{Registry: registry, Identify: func(*http.Request) (ids.Caller, error) {
		return ids.Caller{Tenant: "acme", Principal: "alice"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gateway)
	t.Cleanup(srv.Close)
	_, text := ids.Vectors()
	declared, err := ids.Load(text, ids.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return idstest.Target{
		URL: srv.URL + "/v1/commands", Provider: p,
		Evidence: func(ctx context.Context, commandID string) ([]idstest.Evidence, error) {
			return shown(ctx, log, commandID)
		},
		Key: func(envelope []byte, registered bool) (string, string, error) {
			c, err := ids.ParseCommand(envelope)
			if err != nil {
				return "", "", err
			}
			derive := ids.Derive
			if registered {
				derive = declared.Derive
			}
			d, err := derive(c)
			if err != nil {
				return "", "", err
			}
			return string(d.Canonical), d.Key, nil
		},
	}
}

// shown is what an auditor with the openings is shown of a command.
func shown(ctx context.Context, log *evidence.Log, commandID string) (list []idstest.Evidence, err error) {
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
		ev := idstest.Evidence{
			Type: string(leaf.Type), Decision: leaf.Payload.Decision, CommandID: o.CommandID, IdempotencyKey: o.IdempotencyKey,
			Executed: leaf.Payload.Executed != nil && *leaf.Payload.Executed,
		}
		if o.OutcomeSHA256 != "" {
			ev.OutcomeRef = "sha256:" + o.OutcomeSHA256
		}
		for _, fp := range []string{leaf.Payload.Fingerprint, leaf.Payload.Presented} {
			if fp != "" {
				ev.Fingerprints = append(ev.Fingerprints, fp)
			}
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
	idstest.Run(t, serve(t, store))
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
	idstest.Run(t, serve(t, store))
}
