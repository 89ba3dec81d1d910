package redisstore

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

var errNotYet = errors.New("not yet")

func durability(t *testing.T, s *Store) semel.Durability {
	t.Helper()
	d, err := s.Durability(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// claim stores a new record that is due at once.
func claim(t *testing.T, s *Store, key string) semel.Record {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec := semel.Record{ID: semel.ID{Tenant: "t", Operation: "o", Key: key}, Revision: newRevision(), State: semel.Processing, CreatedAt: now, NextAt: now}
	if _, applied, err := s.Apply(t.Context(), semel.Write{Record: rec}); err != nil || !applied {
		t.Fatal(applied, err)
	}
	return rec
}

func TestShardsAreSpreadEvenlyOverTheSlots(t *testing.T) {
	c := redistest.StartCluster(t, "")
	served := map[int]int{}
	for i, sh := range newKeyspace("semel", true).shards {
		n := c.Nodes[0].Do("CLUSTER", "KEYSLOT", sh.due)
		if want := strconv.Itoa(int(slot(sh.tag))); n != want {
			t.Fatalf("the slot of %s is %s and not %s", sh.due, n, want)
		}
		at, _ := strconv.Atoi(n)
		if at*clusterShards/slotCount != i {
			t.Errorf("shard %d is in slot %d", i, at)
		}
		served[slices.IndexFunc(c.Nodes, func(n *redistest.Server) bool { return n.Serves(at) })]++
	}
	for node, n := range served {
		if n < 20 || n > 23 {
			t.Errorf("node %d has %d of %d shards", node, n, clusterShards)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address, hosts, problem string
		cluster, encrypted      bool
		db                      int
	}{
		{address: "redis://host", hosts: "host:6379"},
		{address: "redis://user:pass@host:1/3", hosts: "host:1", db: 3},
		{address: "rediss://[::1]:7", hosts: "[::1]:7", encrypted: true},
		{address: "redis://[::1]", hosts: "[::1]:6379"},
		{address: "redis-cluster://a:1,b,c:3", hosts: "a:1 b:6379 c:3", cluster: true},
		{address: "rediss-cluster://a:1", hosts: "a:1", cluster: true, encrypted: true},
		{address: "redis://a:1?cluster=true", hosts: "a:1", cluster: true},
		{address: "redis://a:1,b:2", problem: "several hosts"},
		{address: "redis://a/x", problem: "number of a database"},
		{address: "redis-cluster://a/2", problem: "no databases"},
		{address: "redis://a?cluster=maybe", problem: "true or false"},
		{address: "redis://a?read=replica", problem: `parameter "read"`},
		{address: "redis://", problem: "no host"},
		{address: "http://a", problem: `begins with "http"`},
		{address: "redis://user:pass word@host:%zz", problem: "no URL"},
	} {
		t.Run(url.PathEscape(c.address), func(t *testing.T) {
			opt, cluster, err := parse(c.address, &Options{Timeout: time.Second})
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "pass") {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(opt.InitAddress, " ") != c.hosts || cluster != c.cluster || (opt.TLSConfig != nil) != c.encrypted || opt.SelectDB != c.db {
				t.Errorf("got %v, cluster %v, %+v", opt.InitAddress, cluster, opt.TLSConfig)
			}
			if strings.Contains(c.address, "pass") && (opt.Username != "user" || opt.Password != "pass") {
				t.Errorf("user %q, password %q", opt.Username, opt.Password)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	srv := redistest.Start(t, "")
	host, port, _ := strings.Cut(srv.Addr, ":")
	replica := redistest.Start(t, "", "replicaof", host+" "+port)
	refused := func(address string, opts *Options, want string) {
		t.Helper()
		s, err := Open(t.Context(), address, opts)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open gives %v, want %q", err, want)
		}
	}
	refused(replica.URL(), nil, "is a replica")
	refused(srv.URL(), &Options{Prefix: "{x}", Timeout: time.Millisecond}, "Timeout: at least 100ms")
	refused(srv.URL(), &Options{Prefix: "{x}", Timeout: time.Millisecond}, "Prefix: up to 64")
	srv.Do("SET", "new:format", "3")
	refused(srv.URL(), &Options{Prefix: "new"}, "use the program that wrote them, or a later one")
	node := redistest.StartCluster(t, "").Nodes[0]
	refused(node.URL(), nil, "redis-cluster")
	srv.Kill()
	refused(srv.URL(), &Options{Timeout: time.Second}, "connect to")
}

func TestServersThatWillDo(t *testing.T) {
	for _, c := range []struct {
		info    string
		cluster bool
		problem string
	}{
		{info: "redis_version:7.0.15\r\nredis_mode:standalone\r\n"},
		{info: "redis_version:7.0.15\r\nredis_mode:cluster\r\n", cluster: true},
		{info: "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nserver_mode:cluster\r\n", cluster: true},
		{info: ""},
		{info: "redis_version:6.2.14\r\nredis_mode:standalone\r\n", problem: "Redis 6.2.14"},
		{info: "redis_version:7.0.15\r\nredis_mode:cluster\r\n", problem: "part of a Cluster"},
		{info: "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nserver_mode:cluster\r\n", problem: "part of a Cluster"},
		{info: "redis_version:7.0.15\r\nredis_mode:sentinel\r\n", cluster: true, problem: "Sentinel"},
		{info: "redis_version:7.2.4\r\nserver_mode:sentinel\r\n", problem: "Sentinel"},
	} {
		err := checkServer(infoFields(c.info), c.cluster)
		if (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q, cluster %v: %v, want %q", c.info, c.cluster, err, c.problem)
		}
	}
}

func TestDurabilityIsReadFromTheLiveSettings(t *testing.T) {
	srv := redistest.Start(t, "always")
	s := mustOpen(t, srv.URL(), nil)
	check := func(level semel.Level, unsafe ...string) {
		t.Helper()
		d := durability(t, s)
		if d.Level != level || len(d.Unsafe) != len(unsafe) {
			t.Fatalf("the level is %s, unsafe are %q", d.Level, d.Unsafe)
		}
		for i, want := range unsafe {
			if !strings.HasPrefix(d.Unsafe[i], want) {
				t.Errorf("unsafe is %q, want %q", d.Unsafe[i], want)
			}
		}
	}
	check(semel.LevelDisk)
	srv.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	check(semel.LevelProcess, "maxmemory-policy is allkeys-lru: ")
	srv.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	srv.Do("CONFIG", "SET", "appendfsync", "no")
	check(semel.LevelRelaxed, "appendfsync is no: ")
	srv.Do("CONFIG", "SET", "appendonly", "no")
	check(semel.LevelProcess, "appendonly is no: ")
	srv.Do("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	check(semel.LevelDisk)

	t.Run("a server that forbids CONFIG is not trusted", func(t *testing.T) {
		srv.Do("ACL", "SETUSER", "managed", "on", ">pass", "~*", "&*", "+@all", "-config")
		managed := mustOpen(t, "redis://managed:pass@"+srv.Addr, nil)
		d := durability(t, managed)
		if d.Level != semel.LevelProcess || len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], "appendfsync is unknown") {
			t.Fatalf("the level is %s, unsafe are %q", d.Level, d.Unsafe)
		}
	})
	t.Run("a replica makes it cache-grade", func(t *testing.T) {
		host, port, _ := strings.Cut(srv.Addr, ":")
		redistest.Start(t, "", "replicaof", host+" "+port, "repl-diskless-sync-delay", "0")
		redistest.Eventually(t, "the replica is connected", func() error {
			if !strings.Contains(srv.Do("INFO", "replication"), "connected_slaves:1") {
				return errNotYet
			}
			return nil
		})
		check(semel.LevelCache, "connected_slaves is 1: ")
	})
}

func TestAnAnswerForAnotherIdentityIsRefused(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	one, other := claim(t, s, "one"), claim(t, s, "other")
	place := func(r semel.Record) string {
		d := r.ID.Digest()
		_, key := s.keys.find(&d)
		return key
	}
	srv.Do("COPY", place(one), place(other), "REPLACE")
	before := s.link.client()
	if rec, err := s.Get(t.Context(), other.ID); err == nil || errors.Is(err, semel.ErrNotFound) {
		t.Fatalf("Get gives the record of %q, %v", rec.ID.Key, err)
	}
	if s.link.client() == before {
		t.Error("the connection is still used")
	}
	if rec, err := s.Get(t.Context(), one.ID); err != nil || rec.ID != one.ID {
		t.Errorf("Get after that gives %q, %v", rec.ID.Key, err)
	}
	next := other
	next.Revision = newRevision()
	if _, applied, err := s.Apply(t.Context(), semel.Write{Record: next, Expect: newRevision()}); err == nil || applied {
		t.Errorf("Apply: applied %v, %v", applied, err)
	}
}

func TestEntriesOfRecordsThatAreGoneAreRemoved(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	rec := claim(t, s, "k")
	d := rec.ID.Digest()
	sh, key := s.keys.find(&d)
	srv.Do("DEL", key)
	if recs, err := allDue(t.Context(), s, rec.NextAt, 10); err != nil || len(recs) != 0 {
		t.Fatalf("Due gives %d records, %v", len(recs), err)
	}
	if page, err := s.Search(t.Context(), semel.Query{Limit: 10}); err != nil || len(page.Records) != 0 {
		t.Fatalf("Search gives %d records, %v", len(page.Records), err)
	}
	if _, err := s.takeIn(t.Context(), rec.NextAt.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left := entriesLeft(srv, sh); left != "0 0 0" {
		t.Errorf("entries are left: %s", left)
	}
}

// entriesLeft counts the entries of the due index, of the one of births, and of the stream.
func entriesLeft(srv *redistest.Server, sh *shard) string {
	return srv.Do("ZCARD", sh.due) + " " + srv.Do("ZCARD", sh.born) + " " + srv.Do("XLEN", sh.new)
}

func TestWatchHearsOfOtherProcesses(t *testing.T) {
	srv := redistest.Start(t, "")
	s, other := mustOpen(t, srv.URL(), nil), mustOpen(t, srv.URL(), nil)
	rec := claim(t, other, "k")
	changed, stop := s.Watch(t.Context(), rec.ID)
	defer stop()
	drain := func() {
		select {
		case <-changed:
		default:
		}
	}
	hear := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no notice came %s", what)
		}
	}
	change := func() {
		t.Helper()
		next := rec
		next.Revision = newRevision()
		if _, applied, err := other.Apply(t.Context(), semel.Write{Record: next, Expect: rec.Revision}); err != nil || !applied {
			t.Fatal(applied, err)
		}
		rec = next
	}
	drain()
	for range 3 {
		change()
		hear("of a change")
	}
	srv.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	hear("of the lost connection")
	redistest.Eventually(t, "the other store is connected", func() error {
		_, err := other.Get(t.Context(), rec.ID)
		return err
	})
	change()
	hear("after the connection was lost")
}

// A Store opens on a Cluster of which a server is down.
func TestOpenWhereAServerIsDown(t *testing.T) {
	c := redistest.StartCluster(t, "")
	c.Nodes[4].Kill()
	for range 10 { // whichever is asked first
		mustOpen(t, c.URL(), nil)
	}
}
