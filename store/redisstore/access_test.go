package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// documented is the line of docs/stores.md that makes a user.
func documented(tb testing.TB) []string {
	tb.Helper()
	page, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		tb.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^redis-cli (ACL SETUSER semel .*)$`).FindSubmatch(page)
	if line == nil {
		tb.Fatal("docs/stores.md makes no user")
	}
	return strings.Fields(strings.ReplaceAll(string(line[1]), "'", ""))
}

// works goes the main ways of an engine: calls, their outcomes, a sweep that purges, and what
// people and probes ask.
func works(tb testing.TB, st *Store) {
	tb.Helper()
	ctx := tb.Context()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op", Window: time.Hour}}})
	must(err)
	defer e.Close(context.WithoutCancel(ctx))
	for _, key := range []string{"done", "refused", "in flight"} {
		ans, err := e.Begin(ctx, semel.Call{Operation: "op", Key: key})
		must(err)
		switch key {
		case "done":
			must(ans.Attempt.Complete(ctx, semel.Result{Data: []byte("1")}))
		case "refused":
			must(ans.Attempt.Abort(ctx, store.Failure{Code: "none"}))
		}
	}
	again, err := e.Begin(ctx, semel.Call{Operation: "op", Key: "done"})
	if must(err); again.Decision != semel.Replay || string(again.Record.Result.Data) != "1" {
		tb.Errorf("the duplicate gets %v", again.Decision)
	}
	page, err := st.Search(ctx, store.Query{Limit: 10})
	if must(err); len(page.Records) != 3 {
		tb.Errorf("found %d records, want 3", len(page.Records))
	}
	_, err = st.Durability(ctx)
	must(err)
	must(st.CheckWrites(ctx))
	_, err = e.Sweep(ctx)
	must(err)
	due, err := st.Due(ctx, store.DueQuery{Until: mustNow(tb, st).Add(48 * time.Hour), Limit: 10})
	must(err)
	var refs []store.Ref
	for _, rec := range due.Records {
		refs = append(refs, store.Ref{ID: rec.ID, Revision: rec.Revision})
	}
	if n, err := st.Purge(ctx, refs); n != 3 || err != nil {
		tb.Errorf("%d of %d records are purged: %v", n, len(refs), err)
	}
}

// as is the URL of a server for a user.
func as(address, user, password string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// The rights that the page gives a user are enough, alone and in a Cluster: also to read the
// settings.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	acl := documented(t)
	one := redistest.Start(t, "always", "maxmemory-policy", "noeviction")
	one.Do(acl...)
	one.Do("ACL", "SETUSER", "default", "off")
	st := mustOpen(t, as(one.URL(), "semel", "PASSWORD"), nil)
	works(t, st)
	if d, err := st.Durability(t.Context()); err != nil || d.Level != store.LevelDisk || len(d.Unsafe) > 0 {
		t.Errorf("it promises %+v, %v", d, err)
	}
	cluster := redistest.StartCluster(t, "always", redistest.Patient...)
	for _, n := range cluster.Nodes {
		n.Do(acl...)
	}
	works(t, mustOpen(t, as(cluster.URL(), "semel", "PASSWORD"), nil))
}

// Without any of the rights, Open or what the store says of its settings names it.
func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "always")
	acl := documented(t)
	tried := 0
	for i, right := range acl {
		command, is := strings.CutPrefix(right, "+")
		if !is || strings.HasPrefix(command, "cluster|") || command == "ping" { // only in a Cluster, or while nothing is said
			continue
		}
		tried++
		user := "user" + strconv.Itoa(i)
		srv.Do(append(append([]string{"ACL", "SETUSER", user}, acl[3:]...), "-"+command)...)
		st, err := Open(t.Context(), as(srv.URL(), user, "PASSWORD"), nil)
		if command == "info" || command == "config|get" {
			if err != nil {
				t.Errorf("without %s: %v", command, err)
				continue
			}
			if d, err := st.Durability(t.Context()); err != nil || len(d.Unsafe) == 0 || !strings.HasSuffix(d.Unsafe[0], "ACL SETUSER USER +"+command) {
				t.Errorf("without %s it says %q, %v", command, d.Unsafe, err)
			}
		} else if !errors.Is(err, ErrRights) || !strings.Contains(err.Error(), "+"+command) {
			t.Errorf("without %s: %v", command, err)
		}
		if err == nil {
			_ = st.Close()
		}
	}
	if tried != 15 {
		t.Errorf("%d commands were tried", tried)
	}
	srv.Do(acl...)
	st := mustOpen(t, as(srv.URL(), "semel", "PASSWORD"), nil)
	srv.Do("ACL", "SETUSER", "semel", "-zadd", "-unlink")
	srv.Do("ACL", "SETUSER", "elsewhere", "on", ">p", "~other:*", "+@all")
	if _, err := Open(t.Context(), as(srv.URL(), "elsewhere", "p"), nil); !errors.Is(err, ErrRights) || !strings.HasSuffix(err.Error(), "ACL SETUSER USER ~semel:*") {
		t.Errorf("with other keys: %v", err)
	}
	if err := st.CheckWrites(t.Context()); !errors.Is(err, ErrRights) || !strings.Contains(err.Error(), "to run UNLINK, ZADD. ") {
		t.Errorf("a running store has lost rights: %v", err)
	}
}

func TestAServerThatAsksForNoPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "")
	for _, user := range []string{"", "default"} {
		st, err := Open(t.Context(), as(srv.URL(), user, "secret"), nil)
		if err == nil {
			_ = st.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "asks for none") || strings.Contains(err.Error(), "secret") {
			t.Errorf("as %q: %v", user, err)
		}
	}
	srv.Do("CONFIG", "SET", "requirepass", "secret")
	works(t, mustOpen(t, as(srv.URL(), "", "secret"), nil))
}

func TestAServerInNoCluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "")
	st, err := Open(t.Context(), "redis-cluster://"+srv.Addr, nil)
	if err == nil {
		_ = st.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "in no Cluster: its address begins with redis or rediss") {
		t.Errorf("a Cluster of one that is none: %v", err)
	}
}

// The store finds the master by Sentinels, and follows when it moves.
func TestSentinels(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "always")
	host, port, _ := strings.Cut(master.Addr, ":")
	redistest.Start(t, "always", "replicaof", host+" "+port)
	sentinel := redistest.StartSentinel(t, "main", master)
	st := mustOpen(t, "redis-sentinel://"+sentinel.Addr+"/main", nil)
	works(t, st)
	if d, err := st.Durability(t.Context()); err != nil || d.Level != store.LevelCache {
		t.Errorf("with a replica it promises %+v, %v", d, err)
	}
	servertest.Eventually(t, "the Sentinel moves the master", func() error {
		_, err := sentinel.Try("SENTINEL", "FAILOVER", "main") // it first has to find the replica
		return err
	})
	servertest.Eventually(t, "the old master is a replica", func() error {
		role, err := master.Try("INFO", "replication") // which breaks off meanwhile
		if err == nil && !strings.Contains(role, "role:slave") {
			err = errors.New(role)
		}
		return err
	})
	n := 0
	servertest.Eventually(t, "the new master takes writes", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n++
		now := mustNow(t, st)
		_, _, err := st.Apply(ctx, store.Write{Record: &semel.Record{
			ID: semel.ID{Operation: "op", Key: fmt.Sprint("after ", n)}, Revision: newRevision(), State: semel.Processing, CreatedAt: now, NextAt: now.Add(time.Minute), Fence: 1,
		}})
		return err
	})
	if _, err := Open(t.Context(), "redis://"+sentinel.Addr, nil); err == nil || !strings.Contains(err.Error(), "redis-sentinel://host/mymaster") {
		t.Errorf("the Sentinel itself: %v", err)
	}
}

func TestASocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "redis") // a test's own is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	srv := redistest.Start(t, "", "unixsocket", path)
	works(t, mustOpen(t, "redis+unix://"+path+"?db=3", nil))
	if keys := srv.Do("INFO", "keyspace"); !strings.Contains(keys, "db3:") {
		t.Errorf("the records are in %q", keys)
	}
}

func TestAPrivateAuthority(t *testing.T) {
	t.Parallel()
	ca, cert, key := servertest.Authority(t)
	port := servertest.FreePort(t)
	redistest.Start(t, "", "tls-port", strconv.Itoa(port), "tls-ca-cert-file", ca, "tls-cert-file", cert, "tls-key-file", key, "tls-auth-clients", "yes")
	address := "rediss://127.0.0.1:" + strconv.Itoa(port)
	for params, problem := range map[string]string{
		"": "certificate", "?sslrootcert=" + ca: "", "?sslrootcert=" + key: "has no certificate",
		"?sslrootcert=" + ca + "&sslcert=" + cert + "&sslkey=" + key: "none",
	} {
		st, err := Open(t.Context(), address+params, nil)
		if err == nil {
			works(t, st)
			_ = st.Close()
		}
		if (err == nil) != (problem == "none") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("with %q: %v", params, err)
		}
	}
}
