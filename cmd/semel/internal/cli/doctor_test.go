package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// examined is what semel doctor finds, by check; the worst where a check has several findings.
func examined(t *testing.T, args ...string) (code int, report doctorReport, found map[string]doctorFinding) {
	t.Helper()
	code, out, errs := semelWith(t, "", append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("%q: exit %d, %v, %s%s", args, code, err, out, errs)
	}
	found = map[string]doctorFinding{}
	order := []string{"", "ok", "warning", "failed"}
	for _, f := range report.Findings {
		if slices.Index(order, f.Status) > slices.Index(order, found[f.Check].Status) {
			found[f.Check] = f
		}
		if f.Detail == "" || f.Status != "ok" && f.Next == "" && !strings.Contains(strings.Join(args, " "), "--store m") {
			t.Errorf("%+v says too little", f)
		}
		if _, next, ok := strings.Cut(f.Next, "semel "); ok {
			cmd, rest, err := newRoot().Find(strings.Fields(strings.TrimSuffix(next, " -unverified")))
			if err := errors.Join(err, cmd.ParseFlags(rest)); err != nil {
				t.Errorf("%+v: %v", f, err)
			}
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
		status string
		says   string
		next   string
	}{
		{"a store with evidence is well", func(t *testing.T) string { return witnessed(witnessedDir(t)) }, "evidence", "ok", "the newest checkpoint, of 2 entries, is signed by example.com/log", ""},
		{"a mistake in the file", func(*testing.T) string { return "routes: 7\n" }, "config", "failed", "semel.yaml:3:9", "semel config validate "},
		{"a file that is named and isn't there", func(*testing.T) string { return "api: 'off'\nevidence: {key_file: /none/evidence.key}\n" }, "config", "failed", "/none/evidence.key", "semel config validate "},
		{"a directory that is none", func(t *testing.T) string {
			write(t, filepath.Join(t.TempDir(), "x"), "")
			file := filepath.Join(t.TempDir(), "file")
			write(t, file, "")
			return "store: {url: 'pebble:" + file + "'}\n"
		}, "config", "failed", "is a file", "semel config validate "},
		{"a store that isn't there yet", func(t *testing.T) string { return "store: {url: 'pebble:" + t.TempDir() + "/none'}\n" }, "store", "warning", "the first start makes it", "semel serve --config "},
		{"a store in memory", func(*testing.T) string { return "store: {url: 'memory:'}\n" }, "store", "warning", "every record is lost", "store.url"},
		{"a store that another process has open", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "data")
			st, err := pebblestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return "store: {url: 'pebble:" + dir + "'}\n"
		}, "store", "failed", "is in use: stop the service", "semel store status --config "},
		{"a log signed by other keys", func(t *testing.T) string {
			dir := witnessedDir(t)
			keys, err := evidence.GenerateKeys("example.com/log")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "evidence.key"), string(keys.Text()))
			return witnessed(dir)
		}, "evidence", "failed", "isn't signed by the keys in", "semel evidence verify --config "},
		{"a log that was put back", func(t *testing.T) string {
			dir, other := witnessedDir(t), witnessedDir(t)
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "data")), os.Rename(filepath.Join(other, "data"), filepath.Join(dir, "data")),
				os.Rename(filepath.Join(other, "evidence.key"), filepath.Join(dir, "evidence.key"))); err != nil {
				t.Fatal(err)
			}
			return witnessed(dir)
		}, "evidence", "failed", "doesn't contain what", "semel evidence verify --config "},
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
		}, "evidence", "failed", "has one that was signed: the store was put back", "semel evidence verify --config "},
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

// TestTheNextCommandOfFlags has no flag that the command doesn't have, and isn't one that finds nothing.
func TestTheNextCommandOfFlags(t *testing.T) {
	t.Setenv("SEMEL_URL", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	write(t, "token", "0123456789abcdef0123456789abcdef\n")
	const listeners = "listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:0}\nstore: {url: "
	write(t, "memory.yaml", listeners+"'memory:'}\n")
	write(t, "none.yaml", listeners+"'pebble:./none'}\n")
	write(t, "dead.yaml", listeners+"'postgres://semel@127.0.0.1:1/semel'}\n")
	for args, next := range map[string]string{
		"--config memory.yaml --token-file token": "semel config explain --config memory.yaml store.url",
		"--config none.yaml --token-file token":   "semel serve --config none.yaml",
		"--config dead.yaml --token-file token":   "semel store status --config dead.yaml",
		"--config none.yaml --store memory:":      "",
		"--store mongodb://h/db":                  "",
	} {
		_, report, found := examined(t, strings.Fields(args)...)
		f := found["store"]
		if f.Check == "" {
			f = found["config"]
		}
		if f.Status == "ok" || f.Next != next {
			t.Errorf("%s: %+v", args, report)
		}
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
		status  string
		says    string
		next    string
	}{
		{"PostgreSQL with its schema", migrated(""), "standard", "writes", "ok", "nothing to report", ""},
		{"PostgreSQL without its schema", func(t *testing.T) string { return postgres.URL(postgres.Database(t)) }, "standard", "store", "failed", "the schema lacks migrations", "semel migrate up --config "},
		{"PostgreSQL whose role may nothing", func(t *testing.T) string {
			url := migrated("CREATE ROLE doctor_none LOGIN")(t) // the server ends with the tests
			return strings.Replace(url, "postgres@", "doctor_none@", 1)
		}, "standard", "store", "failed", "GRANT USAGE ON SCHEMA", "semel migrate print --role ROLE"},
		{"PostgreSQL that commits in memory", migrated("ALTER DATABASE DATABASE_NAME SET synchronous_commit = off"), "standard", "durability", "warning", `synchronous_commit is "off"`, "semel store status --config "},
		{"the same, and the strict profile", migrated("ALTER DATABASE DATABASE_NAME SET synchronous_commit = off"), "strict", "durability", "failed", `synchronous_commit is "off"`, "semel store status --config "},
		{"PostgreSQL that takes no writes", migrated("ALTER DATABASE DATABASE_NAME SET default_transaction_read_only = on"), "standard", "writes", "failed", "read-only", "semel store status --config "},
		{"a server that nobody runs", func(*testing.T) string { return "postgres://semel@127.0.0.1:1/semel" }, "standard", "store", "failed", "connect", "semel store status --config "},
		{"Redis that forgets", redis(""), "standard", "durability", "warning", "appendonly is no", "semel store status --config "},
		{"Redis that syncs each second", redis("everysec"), "strict", "durability", "failed", "appendfsync is everysec", "semel store status --config "},
		{"Redis that evicts", redis("always", "maxmemory-policy", "allkeys-lru"), "standard", "durability", "warning", "maxmemory-policy is allkeys-lru", "semel store status --config "},
		{"Redis whose user lacks commands", func(t *testing.T) string {
			s := redistest.Start(t, "always")
			s.Do("ACL", "SETUSER", "few", "on", "nopass", "~semel:*", "+@all", "-zadd", "-getrange")
			return strings.Replace(s.URL(), "://", "://few@", 1)
		}, "standard", "store", "failed", "lacks rights to run GETRANGE, ZADD", "redis-cli ACL SETUSER"},
		{"a clock that went ahead", func(t *testing.T) string {
			s := redistest.Start(t, "always")
			s.Do("SET", "semel:time", offsetclock.Note{At: store.InstantOf(time.Now().Add(-60 * time.Hour))}.String())
			return s.URL()
		}, "standard", "clock", "warning", "HELD BACK", "semel store accept-clock --config "},
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
		for _, check := range []string{"service", "serving", "store", "durability", "clock", "held"} {
			if f := found[check]; f.Status != "ok" {
				t.Errorf("%q: %s is %+v", args, check, f)
			}
		}
		if f := found["access"]; f.Status != "warning" || code != ExitOK {
			t.Errorf("%q: exit %d, access is %+v", args, code, f)
		}
		if f := found["config"]; args[0] == "--config" && f.Status != "ok" {
			t.Errorf("%+v", report)
		}
	}
	code, out, errs := semelWith(t, "", "doctor", "--url", adminURL)
	if code != ExitOK || errs != "" || !strings.Contains(out, "ok       service ") || !strings.Contains(out, "next: semel config explain admin.token_file") || !strings.HasSuffix(out, ", 0 failed\n") || strings.Contains(out, "\x1b") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	code, out, errs = semelWith(t, "", "doctor", "--url", "http://127.0.0.1:1")
	if code != ExitCheck || errs != "" || !strings.Contains(out, "failed  service  http://127.0.0.1:1: ") || !strings.HasSuffix(out, "0 ok, 0 warnings, 1 failed\n") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, _ := semelWith(t, "", "doctor", "--config", "none.yaml"); code != ExitUsage {
		t.Errorf("exit %d", code)
	}
}

// TestDoctorOfABrokenService has a service in each of many states.
func TestDoctorOfABrokenService(t *testing.T) {
	const well = "[+] serving ok: semel v1\n[+] store ok: pebble:./data\n[+] clock ok\n"
	for _, test := range []struct {
		name                      string
		ready, wants, token       string // wants is the token that the service wants
		check, status, says, next string
	}{
		{"all is well", well + "[+] held ok: no call waits for a decision; held for unverified callers: 7\n", "secret", "secret", "held", "ok", "unverified callers: 7", ""},
		{"the disk is full", well + "[-] disk: FULL: no new call is accepted\n", "secret", "secret", "disk", "failed", "FULL", "df -h"},
		{"the clock is held back", well + "[!] clock: HELD BACK\n", "secret", "secret", "clock", "warning", "HELD BACK", "semel store accept-clock --url URL --yes"},
		{"the log is not what it was", well + "[!] evidence: FAULT: fork\n", "secret", "secret", "evidence", "warning", "FAULT", "semel evidence verify --url URL"},
		{"it stops", "[-] serving: the service is stopping\n", "secret", "secret", "serving", "failed", "stopping", "semel healthcheck --url URL"},
		{"the caller has no token", well + "[!] issuers\n", "secret", "", "access", "warning", "wants a token", "semel doctor --url URL --token-file FILE"},
		{"only callers with a role are told", well + "[!] issuers\n", "secret", "", "issuers", "warning", "only callers with a role", "semel healthcheck --url URL"},
		{"the caller has no role", well, "secret", "other", "access", "warning", "needs the role viewer", "--token-file FILE"},
		{"nobody needs a token", well, "", "", "access", "warning", "every program on that machine is an admin", "admin.token_file"},
		{"calls are held", well + "[!] held: 1 call of pay waits for a decision, for 2h0m\n", "secret", "secret", "held", "warning", "1 call of pay waits", "semel records list --url URL held -unverified"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				peer.Mark(w.Header(), peer.Admin)
				given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				switch {
				case r.URL.Path == "/readyz":
					_, _ = w.Write([]byte(test.ready))
				case test.wants != "" && given == "":
					w.WriteHeader(http.StatusUnauthorized)
				case test.wants != "" && given != test.wants:
					w.WriteHeader(http.StatusForbidden)
				default:
					_, _ = w.Write([]byte(`{"nodes":3}`))
				}
			}))
			defer srv.Close()
			t.Setenv("SEMEL_TOKEN", test.token)
			_, _, found := examined(t, "--url", srv.URL)
			f := found[test.check]
			if next := strings.ReplaceAll(f.Next, srv.URL, "URL"); f.Status != test.status || !strings.Contains(f.Detail, test.says) || !strings.Contains(next, test.next) {
				t.Errorf("%s is %+v", test.check, f)
			}
			if test.status == "ok" && f.Next != "" {
				t.Errorf("%+v has a next command", f)
			}
		})
	}
}

// The next command names one token file, and no context, which would exclude it.
func TestTheNextCommandHasOneToken(t *testing.T) {
	for where, want := range map[string]string{
		"": " --token-file FILE", " --url U": " --url U --token-file FILE", " --url U --token-file X": " --url U --token-file FILE",
		" --token-file X --config C": " --config C --token-file FILE", " --context prod": " --url http://s:1 --token-file FILE",
	} {
		if got := (&doctorReport{where: where}).withToken("http://s:1"); got != want {
			t.Errorf("%q becomes %q", where, got)
		}
	}
}

func TestDoctorPrints(t *testing.T) {
	var r doctorReport
	r.add("store", "ok", "well", "unused")
	r.add("disk", "failed", "FULL\n\x1b[31m", "df -h")
	r.add("clock", "warning", "", "date")
	var b strings.Builder
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	want := "ok       store  well\nfailed   disk   \"FULL \\x1b[31m\"\n                next: df -h\nwarning  clock  nothing to report\n                next: date\n\n1 ok, 1 warnings, 1 failed\n"
	if b.String() != want || r.Warnings != 1 || r.Failed != 1 {
		t.Errorf("%+v prints\n%q, want\n%q", r, b.String(), want)
	}
}
