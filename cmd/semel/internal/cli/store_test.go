package cli

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

func TestStoreStatus(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	code, out, errs := semelWith(t, "", "store", "status", "--store", "pebble:"+none)
	if _, err := os.Stat(none); code != ExitCheck || !strings.Contains(errs, "there is no store in "+none) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where there is none: exit %d, %s%s, %v", code, out, errs, err)
	}
	dir := recordsDir(t)
	code, out, errs = semelWith(t, "", "store", "status", "--store", dir)
	if code != ExitOK || !strings.Contains(out, "level  disk\n") || !strings.Contains(out, " are free\n") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	code, out, _ = semelWith(t, "", "store", "status", "--store", "memory:", "--json")
	wantFields(t, out, "store", "level", "unsafe")
	if code != ExitCheck {
		t.Error("a store in memory is safe, it says")
	}
}

func TestNewEpoch(t *testing.T) {
	dir := recordsDir(t)
	if code, _, errs := semelWith(t, "", "store", "new-epoch", "--store", dir); code != ExitUsage || !strings.Contains(errs, "--yes") {
		t.Errorf("it is done without being asked for: exit %d, %s", code, errs)
	}
	if code, out, errs := semelWith(t, "", "store", "new-epoch", "--store", dir, "--yes"); code != ExitOK || !strings.HasPrefix(out, "the epoch began ") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if _, out, _ := semelWith(t, "", "store", "status", "--store", dir); !strings.Contains(out, "\nepoch  20") {
		t.Error(out)
	}
}

func TestAcceptClock(t *testing.T) {
	dir := recordsDir(t)
	if code, _, errs := semelWith(t, "", "store", "accept-clock", "--store", dir); code != ExitUsage || !strings.Contains(errs, "--yes") {
		t.Errorf("it is done without being asked for: exit %d, %s", code, errs)
	}
	if code, out, errs := semelWith(t, "", "store", "accept-clock", "--store", dir, "--yes"); code != ExitOK || out != "accepted: the store holds nothing back\n" {
		t.Errorf("where nothing is held back: exit %d, %s%s", code, out, errs)
	}
	redis := redistest.Start(t, "")
	friday := offsetclock.Note{At: store.InstantOf(time.Now().Add(-60 * time.Hour))}
	redis.Do("SET", "semel:time", friday.String())
	code, out, errs := semelWith(t, "", "store", "accept-clock", "--store", redis.URL(), "--yes")
	if code != ExitOK || !strings.HasPrefix(out, "accepted: the store follows its clock, which is 60h0m") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	var heard string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), peer.Admin)
		heard = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte("said\n"))
	}))
	t.Cleanup(service.Close)
	if code, _, errs := semelWith(t, "", "store", "accept-clock", "--url", service.URL, "--yes"); code == ExitOK || !strings.Contains(errs, "401") {
		t.Errorf("of a service that refuses: exit %d, %s", code, errs)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := semelWith(t, "", "store", "accept-clock", "--url", service.URL, "--token-file", token, "--yes"); code != ExitOK || out != "said\n" || heard != "POST /v1/accept-clock Bearer secret" {
		t.Errorf("of a service: exit %d, %s%s, which heard %q", code, out, errs, heard)
	}
	heard = ""
	elsewhere := httptest.NewServer(http.RedirectHandler(service.URL+"/v1/accept-clock", http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	if code, _, _ := semelWith(t, "", "store", "accept-clock", "--url", elsewhere.URL, "--token-file", token, "--yes"); code == ExitOK || heard != "" {
		t.Errorf("of a service that is elsewhere: exit %d, and there was heard %q", code, heard)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	t.Run("only PostgreSQL has migrations", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "migrate", "up", "--store", "memory:"); code != ExitUsage || !strings.Contains(errs, "postgres://") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("the SQL can be printed", func(t *testing.T) {
		if code, out, _ := semelWith(t, "", "migrate", "print", "--schema", "mine"); code != ExitOK || !strings.Contains(out, "mine") || !strings.Contains(out, "idempotency_log") {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t))
	status := func() string {
		t.Helper()
		code, out, errs := semelWith(t, "", "migrate", "status", "--store", url)
		if code != ExitOK {
			t.Fatalf("exit %d, %s", code, errs)
		}
		return out
	}
	if out := status(); !strings.Contains(out, "missing") {
		t.Error(out)
	}
	if code, _, errs := semelWith(t, "", "store", "status", "--store", url); code != ExitCheck || !strings.Contains(errs, "semel migrate up") {
		t.Errorf("a schema without migrations is opened: exit %d, %s", code, errs)
	}
	if code, out, errs := semelWith(t, "", "migrate", "up", "--store", url); code != ExitOK || !strings.HasPrefix(out, "made 0001") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if out := status(); strings.Contains(out, "missing") {
		t.Error(out)
	}
	if _, out, _ := semelWith(t, "", "migrate", "up", "--store", url); out != "nothing to do\n" {
		t.Error(out)
	}
	if code, out, _ := semelWith(t, "", "store", "status", "--store", url); code != ExitOK || !strings.Contains(out, `fsync = "on"`) {
		t.Errorf("exit %d, %s", code, out)
	}
	if code, out, _ := semelWith(t, "", "migrate", "print"); code != ExitOK || !strings.Contains(out, "idempotency_log") {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestAVariableThatSetsNothingIsNamed(t *testing.T) {
	t.Setenv("SEMEL_STORE_URLL", "pebble:x")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("admin: {address: nowhere}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Of each command as much as does not run for long.
	for _, args := range [][]string{
		{"serve", "--config", bad}, {"proxy", "http://127.0.0.1:1", "--admin", "nowhere"}, {"config", "validate"},
		{"store", "status", "--store", "memory:"}, {"migrate", "status", "--store", "memory:"}, {"evidence", "show", "--store", "memory:", "no-such-command"},
	} {
		if _, _, errs := semelWith(t, "", args...); strings.Count(errs, "SEMEL_STORE_URLL sets nothing, did you mean SEMEL_STORE_URL?") != 1 {
			t.Errorf("%v: %s", args, errs)
		}
	}
}
