package pgstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/check"
	kit "github.com/semelhq/semel/internal/check/ids"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pgstore"
)

// node is a process with an evidence log.
type node struct {
	engine *semel.Engine
	log    *evidence.Log
}

// patience is how long a node waits for the server, on a machine that does much else.
const patience = time.Minute

func newNode(t *testing.T, url string, keys *evidence.Keys, ops ...semel.Operation) node {
	t.Helper()
	store, err := pgstore.Open(t.Context(), url, &pgstore.Options{Migrate: true, AcquireTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(store, keys, &evidence.Options{MaxWait: patience})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(store, &semel.Options{Witness: log, Operations: ops, StoreTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(log.Close(ctx), engine.Close(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return node{engine, log}
}

func newKeys(t *testing.T) *evidence.Keys {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestLogOfNodes has two nodes write and integrate one log, and verifies all
// checkpoints that either of them shows against its export.
func TestLogOfNodes(t *testing.T) {
	server := pgtest.Shared(t)
	url, keys := server.URL(server.Database(t)), newKeys(t)
	op := semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}
	nodes := []node{newNode(t, url, keys, op), newNode(t, url, keys, op)}
	const callers, calls = 4, 40
	var mu sync.Mutex
	var kept []string
	var wg sync.WaitGroup
	for c := range callers {
		n := nodes[c%2]
		wg.Go(func() {
			for i := range calls {
				key := fmt.Sprint(c, "-", i)
				call := semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key))}
				for range 2 { // the second is a replay
					_, err := n.engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
						return semel.Result{Data: []byte(key)}, nil
					})
					if err != nil {
						t.Errorf("a call: %v", err)
					}
				}
				if i%10 != 9 {
					continue
				}
				err := n.log.Integrate(t.Context())
				// The other node may have the lock of the head for too long: a service tries again, too.
				for errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
					err = n.log.Integrate(t.Context())
				}
				if err != nil {
					t.Errorf("Integrate: %v", err)
					continue
				}
				r, err := n.log.Reader(t.Context())
				if err != nil {
					t.Errorf("Reader: %v", err)
					continue
				}
				signed, _ := r.Checkpoint()
				mu.Lock()
				kept = append(kept, signed)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := nodes[0].log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := nodes[1].log.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := r.Export(t.Context(), &export, nil); err != nil {
		t.Fatal(err)
	}
	report, err := evidence.Verify(&export, keys.Trust(), &evidence.VerifyOptions{Kept: kept})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d checkpoints of two nodes, %+v", len(kept), report)
	want := int64(3 * callers * calls) // claimed, ended, replayed
	if _, at := r.Checkpoint(); int64(at.Size) != want {
		t.Errorf("the log has %d entries, want %d", at.Size, want)
	}
}

// kitRegistry declares the commands of the conformance kit.
const kitRegistry = `
version: 1
commands:
  - {entity: idstest, action: charge, caller_key: true, per_record: {per_second: 1000, burst: 1000}, evidence: durable, handler: {url: PROVIDER}}
  - {entity: idstest, action: slow, per_record: {per_second: 1000, burst: 1000}, handler: {url: PROVIDER, timeout: 1m}}
  - {entity: idstest, action: confirmed, confirmation: {ttl: 1m}, per_record: {per_second: 1000, burst: 1000}, handler: {url: PROVIDER}}
`

// TestCommands runs the kit for command gateways against one on this store.
func TestCommands(t *testing.T) {
	clause.Proves(t, "IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XII.4", "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3", "IDS-XIII.4", "IDS-XIII.5", "IDS-XIII.6")
	server := pgtest.Shared(t)
	n := newNode(t, server.URL(server.Database(t)), newKeys(t))
	provider, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := ids.Load([]byte(strings.ReplaceAll(kitRegistry, "PROVIDER", "http://"+provider.Addr().String())), ids.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := ids.New(n.engine, ids.Options{Registry: registry, Identify: func(*http.Request) (ids.Caller, error) {
		return ids.Caller{Tenant: "acme", Principal: "alice"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", gateway)
	mux.HandleFunc("/evidence", func(w http.ResponseWriter, r *http.Request) {
		list, err := n.shown(r.Context(), r.FormValue("command"))
		if err != nil {
			t.Error(err)
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	report, err := kit.Kit.Run(t.Context(), check.Options{
		URL: srv.URL + "/v1/commands", Listener: provider,
		Flags: map[string]*string{"tenant": new("acme"), "actor": new("alice"), "evidence": new("/evidence?command={command_id}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Verdicts {
		if v.Outcome != check.Kept {
			t.Errorf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
		}
	}
}

// shown is what the log has of a command.
func (n node) shown(ctx context.Context, commandID string) (list []map[string]any, err error) {
	if err := n.log.Integrate(ctx); err != nil {
		return nil, err
	}
	r, err := n.log.Reader(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := r.Find(ctx, n.log.Name("acme", commandID))
	for _, number := range numbers {
		en, err := r.Entry(ctx, number)
		if err != nil {
			return nil, err
		}
		list = append(list, map[string]any{"leaf": json.RawMessage(en.Leaf), "opening": json.RawMessage(en.Opening)})
	}
	return list, err
}

// A financial call whose row was deleted is held, on whichever node it comes again.
func TestACallWhoseRowIsGoneIsHeld(t *testing.T) {
	clause.Proves(t, "IDS-XV.6", "IDS-XV.2")
	server := pgtest.Shared(t)
	db, keys := server.Database(t), newKeys(t)
	op := semel.Operation{Name: "op", Financial: true, OnExpiry: semel.DeleteExpired, Evidence: semel.EvidenceDecisions}
	first, second := newNode(t, server.URL(db), keys, op), newNode(t, server.URL(db), keys, op)
	effects := 0
	pay := func(n node, key string) semel.Decision {
		t.Helper()
		call := semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key))}
		ans, err := n.engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			effects++
			return semel.Result{Data: []byte("paid")}, nil
		})
		if ans.Decision == "" {
			t.Fatal(err)
		}
		return ans.Decision
	}
	pay(first, "deleted")
	pay(first, "purged")
	// As a running node does every second.
	if err := first.log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := semel.ID{Tenant: "t", Principal: "p", Operation: "op", Key: "purged"}
	if err := second.engine.Purge(t.Context(), id, semel.Removal{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, db, "DELETE FROM semel.idempotency_log WHERE idempotency_key = 'deleted'")
	effects = 0
	for _, n := range []node{second, first} {
		if got := pay(n, "deleted"); got != semel.Held {
			t.Errorf("the call of the deleted row got %s", got)
		}
	}
	// The entry of the purge has no number yet.
	if got := pay(first, "purged"); got != semel.Execute || effects != 1 {
		t.Errorf("the purged call got %s, after %d effects", got, effects)
	}
}
