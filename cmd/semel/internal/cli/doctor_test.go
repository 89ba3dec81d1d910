package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/semel/internal/doctor"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// examined is what semel doctor finds, by check; the worst where a check has several findings.
func examined(t *testing.T, args ...string) (code int, report doctor.Report, found map[string]doctor.Finding) {
	t.Helper()
	code, out, errs := semelWith(t, "", append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("%q: exit %d, %v, %s%s", args, code, err, out, errs)
	}
	found = map[string]doctor.Finding{}
	order := []doctor.Status{"", doctor.OK, doctor.Warning, doctor.Failed}
	for _, f := range report.Findings {
		if slices.Index(order, f.Status) > slices.Index(order, found[f.Check].Status) {
			found[f.Check] = f
		}
		if f.Detail == "" || f.Status != doctor.OK && !strings.Contains(f.Next, " ") && f.Next != "df -h" {
			t.Errorf("%+v says too little", f)
		}
	}
	if (code == ExitOK) != report.Healthy || report.Healthy != (report.Failed == 0) || code != ExitOK && code != ExitCheck {
		t.Errorf("exit %d with %+v", code, report)
	}
	return code, report, found
}

// witnessedDir is a directory with a store that has a signed evidence log, by keys beside it.
func witnessedDir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "evidence.key"), string(keys.Text()))
	st, err := pebblestore.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := service.OpenEvidence(&config.Evidence{KeyFile: filepath.Join(dir, "evidence.key")}, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(st, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = engine.Do(t.Context(), semel.Call{Operation: "pay", Key: "order-1"}, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
	ctx := context.WithoutCancel(t.Context())
	if err := errors.Join(err, log.Close(ctx), log.Integrate(ctx), engine.Close(ctx), st.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDoctor breaks an installation in each of many ways.
func TestDoctor(t *testing.T) {
	t.Setenv("SEMEL_URL", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	const listeners = "listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:0}\n"
	witnessed := func(dir string) string {
		return "api: 'off'\nstore: {url: 'pebble:" + dir + "/data'}\nevidence: {key_file: " + dir + "/evidence.key}\n"
	}
	for _, test := range []struct {
		name   string
		set    func(t *testing.T) (config string) // without listeners, unless it begins with listen
		check  string
		status doctor.Status
		says   string
		next   string
	}{
		{"a store with evidence is well", func(t *testing.T) string { return witnessed(witnessedDir(t)) }, "evidence", doctor.OK, "the newest checkpoint, of 2 entries, is signed by example.com/log", ""},
		{"a mistake in the file", func(*testing.T) string { return "routes: 7\n" }, "config", doctor.Failed, "semel.yaml:3:9", "semel config validate "},
		{"a file that is named and isn't there", func(*testing.T) string { return "api: 'off'\nevidence: {key_file: /none/evidence.key}\n" }, "config", doctor.Failed, "/none/evidence.key", "semel config validate "},
		{"a directory that is none", func(t *testing.T) string {
			write(t, filepath.Join(t.TempDir(), "x"), "")
			file := filepath.Join(t.TempDir(), "file")
			write(t, file, "")
			return "store: {url: 'pebble:" + file + "'}\n"
		}, "config", doctor.Failed, "is not a directory", "semel config validate "},
		{"a store that isn't there yet", func(t *testing.T) string { return "store: {url: 'pebble:" + t.TempDir() + "/none'}\n" }, "store", doctor.Warning, "the first start makes it", "semel serve --config "},
		{"a store in memory", func(*testing.T) string { return "store: {url: 'memory:'}\n" }, "store", doctor.Warning, "every record is lost", "store.url"},
		{"a store that another process has open", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "data")
			st, err := pebblestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return "store: {url: 'pebble:" + dir + "'}\n"
		}, "store", doctor.Failed, "is in use: stop the service", "semel store status --config "},
		{"a port that is taken", func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return "listen: {address: '" + l.Addr().String() + "'}\nadmin: {address: 127.0.0.1:0}\n"
		}, "listen.address", doctor.Failed, "address already in use", "listen.address"},
		{"a secret that everybody can read", func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "token")
			write(t, file, strings.Repeat("t", 40)+"\n")
			if err := os.Chmod(file, 0o644); err != nil {
				t.Fatal(err)
			}
			return "listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:0, token_file: " + file + "}\n"
		}, "secrets", doctor.Warning, "can be read by everybody", "chmod o-r "},
		{"no operator is named", func(*testing.T) string { return "" }, "access", doctor.Warning, "every program on this machine is an admin", "admin.token_file"},
		{"held calls", func(t *testing.T) string { return "store: {url: '" + recordsDir(t) + "'}\n" }, "held", doctor.Warning, "2 calls held, the oldest for", "semel records list --config "},
		{"parked messages", func(t *testing.T) string {
			st, _, _ := messagesDir(t)
			return "store: {url: '" + st + "'}\n"
		}, "messages", doctor.Warning, "2 messages parked", "semel messages list --config "},
		{"a log signed by other keys", func(t *testing.T) string {
			dir := witnessedDir(t)
			keys, err := evidence.GenerateKeys("example.com/log")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "evidence.key"), string(keys.Text()))
			return witnessed(dir)
		}, "evidence", doctor.Failed, "isn't signed by the keys in", "semel evidence verify --config "},
		{"a log that was put back", func(t *testing.T) string {
			dir, other := witnessedDir(t), witnessedDir(t)
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "data")), os.Rename(filepath.Join(other, "data"), filepath.Join(dir, "data")),
				os.Rename(filepath.Join(other, "evidence.key"), filepath.Join(dir, "evidence.key"))); err != nil {
				t.Fatal(err)
			}
			return witnessed(dir)
		}, "evidence", doctor.Failed, "doesn't contain what", "semel evidence verify --config "},
		{"a store with evidence that is empty again", func(t *testing.T) string {
			dir := witnessedDir(t)
			if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
				t.Fatal(err)
			}
			st, err := pebblestore.Open(filepath.Join(dir, "data"), nil)
			if err = errors.Join(err, st.Close()); err != nil {
				t.Fatal(err)
			}
			return witnessed(dir)
		}, "evidence", doctor.Failed, "has one that was signed: the store was put back", "semel evidence verify --config "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			text := test.set(t)
			if !strings.HasPrefix(text, "listen:") {
				text = listeners + text
			}
			write(t, "semel.yaml", text)
			_, _, found := examined(t, "--config", "semel.yaml")
			if f := found[test.check]; f.Status != test.status || !strings.Contains(f.Detail, test.says) || !strings.Contains(f.Next, test.next) {
				t.Errorf("%s is %+v", test.check, f)
			}
		})
	}
}

// TestDoctorOfServers: what their settings are worth, whether they can be used, their clocks.
func TestDoctorOfServers(t *testing.T) {
	t.Setenv("SEMEL_URL", "")
	t.Chdir(t.TempDir())
	postgres := pgtest.Shared(t)
	migrated := func(sql string) func(t *testing.T) string {
		return func(t *testing.T) string {
			db := postgres.Database(t)
			url := postgres.URL(db)
			if code, _, errs := semelWith(t, "", "migrate", "up", "--store", url); code != ExitOK {
				t.Fatal(errs)
			}
			if sql != "" {
				postgres.Exec(t, db, strings.ReplaceAll(sql, "DATABASE_NAME", db))
			}
			return url
		}
	}
	redis := func(fsync string, settings ...string) func(t *testing.T) string {
		return func(t *testing.T) string { return redistest.Start(t, fsync, settings...).URL() }
	}
	for _, test := range []struct {
		name    string
		url     func(t *testing.T) string
		profile string
		check   string
		status  doctor.Status
		says    string
		next    string
	}{
		{"PostgreSQL with its schema", migrated(""), "standard", "writes", doctor.OK, "nothing to report", ""},
		{"PostgreSQL without its schema", func(t *testing.T) string { return postgres.URL(postgres.Database(t)) }, "standard", "store", doctor.Failed, "the schema lacks migrations", "semel migrate up --config "},
		{"PostgreSQL whose role may nothing", func(t *testing.T) string {
			url := migrated("CREATE ROLE doctor_none LOGIN")(t) // the server ends with the tests
			return strings.Replace(url, "postgres@", "doctor_none@", 1)
		}, "standard", "store", doctor.Failed, "GRANT USAGE ON SCHEMA", "semel migrate print --role ROLE"},
		{"PostgreSQL that commits in memory", migrated("ALTER DATABASE DATABASE_NAME SET synchronous_commit = off"), "standard", "durability", doctor.Warning, `synchronous_commit is "off"`, "semel store status --config "},
		{"the same, and the strict profile", migrated("ALTER DATABASE DATABASE_NAME SET synchronous_commit = off"), "strict", "durability", doctor.Failed, `synchronous_commit is "off"`, "semel store status --config "},
		{"PostgreSQL that takes no writes", migrated("ALTER DATABASE DATABASE_NAME SET default_transaction_read_only = on"), "standard", "writes", doctor.Failed, "read-only", "semel store status --config "},
		{"a server that nobody runs", func(*testing.T) string { return "postgres://semel@127.0.0.1:1/semel" }, "standard", "store", doctor.Failed, "connect", "semel store status --config "},
		{"Redis that forgets", redis(""), "standard", "durability", doctor.Warning, "appendonly is no", "semel store status --config "},
		{"Redis that syncs each second", redis("everysec"), "strict", "durability", doctor.Failed, "appendfsync is everysec", "semel store status --config "},
		{"Redis that evicts", redis("always", "maxmemory-policy", "allkeys-lru"), "standard", "durability", doctor.Warning, "maxmemory-policy is allkeys-lru", "semel store status --config "},
		{"Redis whose user lacks commands", func(t *testing.T) string {
			s := redistest.Start(t, "always")
			s.Do("ACL", "SETUSER", "few", "on", "nopass", "~semel:*", "+@all", "-zadd", "-getrange")
			return strings.Replace(s.URL(), "://", "://few@", 1)
		}, "standard", "store", doctor.Failed, "lacks rights to run GETRANGE, ZADD", "redis-cli ACL SETUSER"},
		{"a clock that went ahead", func(t *testing.T) string {
			s := redistest.Start(t, "always")
			s.Do("SET", "semel:time", offsetclock.Note{At: store.InstantOf(time.Now().Add(-60 * time.Hour))}.String())
			return s.URL()
		}, "standard", "clock", doctor.Warning, "HELD BACK", "semel store accept-clock --config "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "semel.yaml", "listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:0}\nstore: {url: '"+test.url(t)+"', profile: "+test.profile+"}\n")
			_, _, found := examined(t, "--config", "semel.yaml")
			if f := found[test.check]; f.Status != test.status || !strings.Contains(f.Detail, test.says) || !strings.Contains(f.Next, test.next) {
				t.Errorf("%s is %+v", test.check, f)
			}
		})
	}
}

// TestDoctorOfAService: a service that runs is asked, wherever it is found.
func TestDoctorOfAService(t *testing.T) {
	t.Setenv("SEMEL_URL", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := filepath.Join(t.TempDir(), "data")
	text := "store: {url: 'pebble:" + dir + "'}\noperations: [{name: pay}]\n"
	_, adminURL := serving(t, text)
	write(t, filepath.Join(filepath.Dir(dir), "n1.yaml"), "listen: {address: 127.0.0.1:0}\nadmin: {address: '"+strings.TrimPrefix(adminURL, "http://")+"'}\n"+text)
	for _, args := range [][]string{{"--url", adminURL}, {"--config", filepath.Join(filepath.Dir(dir), "n1.yaml")}} {
		code, report, found := examined(t, args...)
		for _, check := range []string{"service", "store", "durability", "clock", "held", "messages", "version"} {
			if f := found[check]; f.Status != doctor.OK {
				t.Errorf("%q: %s is %+v", args, check, f)
			}
		}
		if f := found["access"]; f.Status != doctor.Warning || code != ExitOK {
			t.Errorf("%q: exit %d, access is %+v", args, code, f)
		}
		if args[0] == "--config" {
			if f := found["admin.address"]; f.Status != doctor.OK || !strings.Contains(f.Detail, "accepts connections") || found["config"].Status != doctor.OK {
				t.Errorf("%+v", report)
			}
		}
	}
	code, out, errs := semelWith(t, "", "doctor", "--url", adminURL)
	if code != ExitOK || errs != "" || !strings.Contains(out, "ok       service") || !strings.Contains(out, "next: semel config explain admin.token_file") || !strings.HasSuffix(out, ", 0 failed\n") || strings.Contains(out, "\x1b") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	code, out, errs = semelWith(t, "", "doctor", "--url", "http://127.0.0.1:1")
	if code != ExitCheck || errs != "" || !strings.Contains(out, "failed   service  http://127.0.0.1:1: ") || !strings.HasSuffix(out, "0 ok, 0 warnings, 1 failed\n") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, _ := semelWith(t, "", "doctor", "--config", "none.yaml"); code != ExitUsage {
		t.Errorf("exit %d", code)
	}
}
