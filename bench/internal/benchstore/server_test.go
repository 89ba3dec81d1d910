package benchstore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// server is a server for a run.
type server struct {
	url   string
	title string
	// left lists what a run has left behind.
	left func(t *testing.T) string
}

func postgresServer(t *testing.T) server {
	s := pgtest.Shared(t)
	db := s.Database(t)
	return server{s.URL(db), "one statement per transition", func(t *testing.T) string {
		var left string
		err := s.Conn(t, db).QueryRow(t.Context(), "SELECT coalesce(string_agg(nspname, ' '), '') FROM pg_namespace WHERE nspname LIKE 'semel%'").Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}}
}

func redisServer(t *testing.T) server {
	s := redistest.Start(t, "everysec")
	return server{s.URL(), "bare Redis", func(*testing.T) string { return strings.Trim(s.Do("KEYS", "*"), "[]") }}
}

func clusterServer(t *testing.T) server {
	c := redistest.StartCluster(t, "")
	return server{c.URL(), "bare Redis", func(*testing.T) string {
		var left strings.Builder
		for _, n := range c.Nodes[:3] {
			left.WriteString(strings.Trim(n.Do("KEYS", "*"), "[]"))
		}
		return left.String()
	}}
}

func serverOptions(s server) Options {
	o := options("")
	o.URL = s.url
	o.Duration = 200 * time.Millisecond
	return o
}

func TestRunOnServers(t *testing.T) {
	for _, c := range []struct {
		kind  string
		start func(*testing.T) server
	}{{kindPostgres, postgresServer}, {kindRedis, redisServer}, {kindCluster, clusterServer}} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			clean := func(t *testing.T) {
				t.Helper()
				if left := s.left(t); left != "" {
					t.Errorf("left: %s", left)
				}
			}
			t.Run("it works and leaves nothing behind", func(t *testing.T) {
				r := run(t, serverOptions(s))
				wantWork(t, "ours", r.Ours)
				if r.Store != c.kind || r.Durability == nil || r.Durability.Level == "" {
					t.Errorf("report = %+v", r)
				}
				clean(t)
			})
			t.Run("it takes turns with what has no engine", func(t *testing.T) {
				o := serverOptions(s)
				o.Compare = true
				r := run(t, o)
				wantWork(t, "ours", r.Ours)
				wantWork(t, "bare", r.Bare)
				if r.ComparedWith != s.title || r.Ratio <= 0 || len(r.Rounds) != o.Rounds || r.BareDurability != nil {
					t.Errorf("report = %+v", r)
				}
				clean(t)
			})
			t.Run("a filled store replays its records", func(t *testing.T) {
				o := serverOptions(s)
				o.Records = 200
				r := run(t, o)
				wantWork(t, "filled replay", &r.Filled.Replay)
				wantWork(t, "filled execute", &r.Filled.Execute)
				clean(t)
			})
			t.Run("an interrupt ends it, and leaves nothing behind", func(t *testing.T) {
				o := serverOptions(s)
				o.Duration = time.Hour
				ctx, cancel := context.WithCancel(t.Context())
				o.Progress = func(string, ...any) { cancel() }
				if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
					t.Errorf("error = %v", err)
				}
				clean(t)
			})
			t.Run("the data can be kept", func(t *testing.T) {
				o := serverOptions(s)
				o.Keep = true
				run(t, o)
				if left := s.left(t); !strings.Contains(left, "semel_bench_") {
					t.Errorf("left: %q", left)
				}
			})
		})
	}
}

func TestPebbleAgainstRedis(t *testing.T) {
	s := redistest.Start(t, "always")
	o := options(t.TempDir())
	o.Compare, o.Against = true, s.URL()
	r := run(t, o)
	wantWork(t, "ours", r.Ours)
	wantWork(t, "bare", r.Bare)
	if r.Store != kindPebble || r.ComparedWith != "bare Redis" || r.Ratio <= 0 {
		t.Errorf("report = %+v", r)
	}
	if d := r.BareDurability; d == nil || !hasSetting(d, "appendfsync", "always") {
		t.Errorf("durability of Redis = %+v", d)
	}
	if left := s.Do("KEYS", "*"); left != "[]" {
		t.Errorf("left: %s", left)
	}
}

func hasSetting(d *store.Durability, name, value string) bool {
	for _, s := range d.Settings {
		if s.Name == name && s.Value == value {
			return true
		}
	}
	return false
}

func TestServerOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		want string
		o    Options
	}{
		{"--compare with a URL needs", Options{URL: "redis://x", Compare: true, Against: "redis://y"}},
		{"--compare takes the URL of a Redis", Options{Dir: "x", Compare: true, Against: "postgres://y"}},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s is not in: %v", c.want, err)
		}
	}
}
