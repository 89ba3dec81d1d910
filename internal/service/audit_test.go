package service_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
)

// A payment whose record was deleted between two runs of a service isn't made again, and the
// service itself says that the record is missing.
func TestADeletedRecordIsFoundAndPaysNothing(t *testing.T) {
	clause.Proves(t, "IDS-XV.6", "IDS-XV.5")
	for name, open := range map[string]func(t *testing.T) (url string, remove func(id semel.ID)){
		"embedded": func(t *testing.T) (string, func(semel.ID)) {
			url := "pebble:" + filepath.Join(t.TempDir(), "data")
			return url, func(id semel.ID) {
				st, err := service.OpenStore(t.Context(), config.Store{URL: url})
				if err != nil {
					t.Fatal(err)
				}
				rec, err := st.Get(t.Context(), id)
				if err == nil {
					_, err = st.Extras().Purge.Purge(t.Context(), []store.Ref{{ID: id, Revision: rec.Revision}})
				}
				if err := errors.Join(err, st.Close()); err != nil {
					t.Fatal(err)
				}
			}
		},
		"PostgreSQL": func(t *testing.T) (string, func(semel.ID)) {
			pg := pgtest.Shared(t)
			db := pg.Database(t)
			return pg.URL(db), func(id semel.ID) {
				pg.Exec(t, db, "DELETE FROM semel.idempotency_log WHERE idempotency_key = '"+id.Key+"'")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, remove := open(t)
			var paid atomic.Int32
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				paid.Add(1)
				w.WriteHeader(http.StatusCreated)
			}))
			defer upstream.Close()
			dir := t.TempDir()
			keys, err := evidence.GenerateKeys("example.com/log")
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "evidence.key"), keys.Text(), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			file := fmt.Sprintf(`
store: {url: %q, migrate: %v}
auth:
  default_tenant: acme
  tokens: [{name: alice, sha256: %s}, {name: vera, roles: [viewer], sha256: %s}]
operations: [{name: pay, financial: true, archive: false, evidence: decisions}]
routes: [{match: POST /pay, upstream: %q, operation: pay}]
evidence: {key_file: %q, audit_every: 1h}
`, url, name == "PostgreSQL", auth.HashToken("alice"), auth.HashToken("vera"), upstream.URL, filepath.Join(dir, "evidence.key"))
			pay := func(s *running) int {
				status, _, _ := do(t, "POST", s.data("/pay"), "{}", "Idempotency-Key", "order-1", "Authorization", "Bearer alice")
				return status
			}
			audited := func(s *running, check, metric string) {
				t.Helper()
				servertest.Eventually(t, "the audit is over", func() error {
					_, _, ready := do(t, "GET", s.admin("/readyz?verbose"), "", "Authorization", "Bearer vera")
					_, _, metrics := do(t, "GET", s.admin("/metrics"), "", "Authorization", "Bearer vera")
					if !strings.Contains(ready, check) || !strings.Contains(metrics, metric) {
						return errors.New(ready)
					}
					return nil
				})
			}
			s := start(t, write(t, file))
			audited(s, " records at ", "\nsemel_evidence_audit_faults 0\n")
			if first, again := pay(s), pay(s); first != http.StatusCreated || again != first || paid.Load() != 1 {
				t.Fatal("the payment isn't made once")
			}
			_, _, found := do(t, "GET", s.admin("/v1/records?q=key:order-1"), "", "Authorization", "Bearer vera")
			_, rest, _ := strings.Cut(found, `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			s.stop()
			if err := <-s.done; err != nil {
				t.Fatal(err)
			}
			s.done <- nil
			parsed, err := store.DecodeID(id)
			if err != nil {
				t.Fatal(found, err)
			}
			remove(parsed)

			s = start(t, write(t, file))
			audited(s, "[!] audit: 1 records aren't what the evidence log says (1 missing)", "\nsemel_evidence_audit_faults 1\n")
			if a, b := pay(s), pay(s); a != http.StatusConflict || b != http.StatusConflict || paid.Load() != 1 {
				t.Errorf("got %d and %d, and it was paid %d times", a, b, paid.Load())
			}
		})
	}
}
