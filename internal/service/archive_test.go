package service_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store/memstore"
)

// insist tries again while the store is unavailable, as clients do: on a busy machine a
// server may not give a connection in time. What follows says that nothing was done, or asks
// for what was.
func insist(t *testing.T, try func() error) {
	t.Helper()
	err := try()
	for errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) && t.Context().Err() == nil {
		err = try()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestArchiveInTheStore(t *testing.T) {
	t.Parallel()
	t.Run("a financial record is in the archive's table before it is purged", func(t *testing.T) {
		clause.Proves(t, "MAP-EXP.3", "MAP-EXP.4")
		pg := pgtest.Shared(t)
		url := pg.URL(pg.Database(t))
		const files = "semel-archive" // the default of archive.dir
		s := start(t, write(t, `
store: {url: "`+url+`", migrate: true}
operations: [{name: charge, financial: true}]
`))
		call := semel.Call{Tenant: "t", Principal: "p", Operation: "charge", Key: "k", Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("k"))}
		result := strings.Repeat("paid ", 200)
		var ans semel.Answer
		insist(t, func() (err error) {
			ans, err = s.Engine().Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
				return semel.Result{Data: []byte(result)}, nil
			})
			return err
		})
		insist(t, func() error {
			return s.Engine().Purge(t.Context(), ans.Record.ID, semel.Removal{Reason: "the test says so"})
		})
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var live int
		var kept string
		err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM semel.semel_records WHERE key = 'k'), convert_from(result, 'UTF8')
			FROM semel.idempotency_archive WHERE key = 'k' AND state = 'completed' AND archived_at > now() - $1::interval`, time.Minute).Scan(&live, &kept)
		if err != nil || live != 0 || kept != result {
			t.Errorf("%d records are left, and %d bytes of result are archived, %v", live, len(kept), err)
		}
		if _, err := os.Stat(files); !os.IsNotExist(err) {
			t.Errorf("there is a directory of files, too: %v", err)
		}
		if status, _, _ := do(t, http.MethodGet, s.admin("/readyz"), ""); status != http.StatusOK {
			t.Errorf("readyz: %d", status)
		}
	})
	t.Run("a store that has no such table is refused", func(t *testing.T) {
		if _, _, err := service.OpenArchive(config.Archive{In: "store"}, memstore.New()); err == nil {
			t.Error("the memory store archives")
		}
	})
}
