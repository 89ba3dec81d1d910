package redisstore

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// number is a decimal number, or zero.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

var errNotYet = errors.New("not yet")

func durability(t *testing.T, s *Store) store.Durability {
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
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); err != nil || !applied {
		t.Fatal(applied, err)
	}
	return rec
}

func TestShardsAreSpreadEvenlyOverTheSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "", redistest.Patient...)
	served := map[int]int{}
	keys := newKeyspace("semel")
	for i := range keys.shards {
		sh := &keys.shards[i]
		at := slotOf(i)
		for _, key := range []string{sh.due, sh.created, sh.records + "x"} {
			if n := c.Nodes[0].Do("CLUSTER", "KEYSLOT", key); n != strconv.Itoa(at) {
				t.Fatalf("the slot of %s is %s and not %d", key, n, at)
			}
		}
		if at*shardCount/slotCount != i {
			t.Errorf("shard %d is in slot %d", i, at)
		}
		served[slices.IndexFunc(c.Nodes, func(n *redistest.Server) bool { return n.Serves(at) })]++
	}
	for node, n := range served {
		if n < 20 || n > 23 {
			t.Errorf("node %d has %d of %d shards", node, n, shardCount)
		}
	}
}

const slotCount = 16384

// slotOf is that of a shard's tag: CRC-16/XMODEM, as the Cluster specification has it.
func slotOf(shard int) int {
	var crc uint16
	for _, c := range []byte(tags[shard]) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slotCount)
}

// firstShardOf is the first one that a server serves.
func firstShardOf(n *redistest.Server) int {
	return slices.IndexFunc(tags, func(tag string) bool { return n.Serves(slotOf(slices.Index(tags, tag))) })
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
		{address: "valkey://host", hosts: "host:6379"},
		{address: "valkeys-cluster://a", hosts: "a:6379", cluster: true, encrypted: true},
		{address: "redis-sentinel://user:pass@a,b:1/main/2?sentinel_password=x", hosts: "a:26379 b:1", db: 2},
		{address: "rediss-sentinel://a/main", hosts: "a:26379", encrypted: true},
		{address: "redis-sentinel://a", problem: "the name by which"},
		{address: "redis+unix://user:pass@/run/redis.sock?db=1", hosts: "/run/redis.sock", db: 1},
		{address: "redis+unix://run/redis.sock", problem: "three slashes"},
		{address: "redis+unix:///s?db=x", problem: "number of a database"},
		{address: "rediss+unix:///s", problem: `begins with "rediss+unix"`},
		{address: "redis://a?sslrootcert=/ca", problem: "may have none"},
		{address: "rediss://a?sslrootcert=/none&sslkey=pass", problem: "sslrootcert: open /none"},
		{address: "redis://a:1,b:2", problem: "several hosts"},
		{address: "redis://a/x", problem: "number of a database"},
		{address: "redis-cluster://a/2", problem: "no database"},
		{address: "redis://a?read=replica", problem: "has parameters"},
		{address: "redis://", problem: "no host"},
		{address: "http://a", problem: `begins with "http"`},
		{address: "redis://user:pass word@host:%zz", problem: "not a URL"},
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
	t.Parallel()
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
	node := redistest.StartCluster(t, "", redistest.Patient...).Nodes[0]
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
	clause.Proves(t, "G-LEVEL")
	srv := redistest.Start(t, "always")
	s := mustOpen(t, srv.URL(), nil)
	check := func(level store.Level, unsafe ...string) {
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
	check(store.LevelDisk)
	srv.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	check(store.LevelProcess, "maxmemory-policy is allkeys-lru: ")
	srv.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	srv.Do("CONFIG", "SET", "appendfsync", "no")
	check(store.LevelRelaxed, "appendfsync is no: ")
	srv.Do("CONFIG", "SET", "appendonly", "no")
	check(store.LevelProcess, "appendonly is no: ")
	srv.Do("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	check(store.LevelDisk)

	t.Run("a server that forbids CONFIG is not trusted", func(t *testing.T) {
		srv.Do("ACL", "SETUSER", "managed", "on", ">pass", "~*", "&*", "+@all", "-config")
		managed := mustOpen(t, "redis://managed:pass@"+srv.Addr, nil)
		d := durability(t, managed)
		if d.Level != store.LevelProcess || len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], "appendfsync is unknown") {
			t.Fatalf("the level is %s, unsafe are %q", d.Level, d.Unsafe)
		}
	})
	t.Run("a replica makes it cache-grade", func(t *testing.T) {
		host, port, _ := strings.Cut(srv.Addr, ":")
		redistest.Start(t, "", "replicaof", host+" "+port, "repl-diskless-sync-delay", "0")
		servertest.Eventually(t, "the replica is connected", func() error {
			if !strings.Contains(srv.Do("INFO", "replication"), "connected_slaves:1") {
				return errNotYet
			}
			return nil
		})
		check(store.LevelCache, "connected_slaves is 1: ")
	})
}

func TestAnAnswerForAnotherIdentityIsRefused(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	one, other := claim(t, s, "one"), claim(t, s, "other")
	srv.Do("COPY", keyOf(s, one), keyOf(s, other), "REPLACE")
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
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(next), Expect: newRevision()}); err == nil || applied {
		t.Errorf("Apply: applied %v, %v", applied, err)
	}
}

func TestEntriesOfRecordsThatAreGoneAreRemoved(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	rec := claim(t, s, "k")
	other := claim(t, s, "other")
	srv.Do("DEL", keyOf(s, rec))
	srv.Do("DEL", keyOf(s, other))
	if left := entriesLeft(srv, s); left != "2 2" {
		t.Fatalf("there are entries: %s", left)
	}
	if recs, err := allDue(t.Context(), s, rec.NextAt, 10); err != nil || len(recs) != 0 {
		t.Fatalf("Due gives %d records, %v", len(recs), err)
	}
	if page, err := s.Search(t.Context(), store.Query{Limit: 10}); err != nil || len(page.Records) != 0 {
		t.Fatalf("Search gives %d records, %v", len(page.Records), err)
	}
	if recs, err := allDue(t.Context(), s, other.NextAt, 10); err != nil || len(recs) != 0 {
		t.Fatalf("Due gives %d records, %v", len(recs), err)
	}
	if left := entriesLeft(srv, s); left != "0 0" {
		t.Errorf("entries are left: %s", left)
	}
}

// entriesLeft counts the entries of the due index and of the one of creations.
func entriesLeft(srv *redistest.Server, s *Store) string {
	due, created := 0, 0
	for i := range s.keys.shards {
		due += number(srv.Do("ZCARD", s.keys.shards[i].due))
		created += number(srv.Do("ZCARD", s.keys.shards[i].created))
	}
	return fmt.Sprint(due, " ", created)
}

// A Store opens on a Cluster of which a server is down.
func TestOpenWhereAServerIsDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "", redistest.Patient...)
	c.Nodes[4].Kill()
	var all sync.WaitGroup
	for range 10 { // whichever is asked first
		all.Go(func() {
			s, err := Open(t.Context(), c.URL(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	all.Wait()
}
