package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"github.com/semelhq/semel/store"
)

// The settings that decide how durable a server is, as CONFIG and INFO call them.
const (
	setAppendOnly  = "appendonly"
	setAppendFsync = "appendfsync"
	setEviction    = "maxmemory-policy"
	setMinReplicas = "min-replicas-to-write"
	setRole        = "role"
	setReplicas    = "connected_slaves"
	setCluster     = "cluster_enabled"
	setAOFStatus   = "aof_last_write_status"
	// rights stands for settings that the user lacks the right to read.
	rights = "rights"
)

var shown = []string{setAppendOnly, setAppendFsync, setEviction, setMinReplicas, setRole, setReplicas, setCluster}

// node has one server's settings. Settings that the server doesn't reveal are "unknown".
type node map[string]string

// Durability is [store.DurabilityReporter.Durability]. It reads the settings of all masters;
// the weakest decides the level. Settings that differ are listed with all their values. If the
// server forbids CONFIG, as many managed services do, INFO tells some of them; a setting that
// stays unknown counts as the worst value it could have.
//
// With replicas, and in a Cluster, the level is [store.LevelCache] at best: a master that is cut
// off acknowledges writes that the failover then loses. min-replicas-to-write only shortens that
// time. A WAIT after each write wouldn't prevent it, either, and would block the connection that
// all callers share, so the store doesn't send one.
func (s *Store) Durability(ctx context.Context) (store.Durability, error) {
	if err := s.enter(); err != nil {
		return store.Durability{}, err
	}
	defer s.leave()
	nodes, err := askEach(s.link, func(c rueidis.Client) (node, error) { return readNode(ctx, c) })
	if err != nil {
		return store.Durability{}, fmt.Errorf("redisstore: the settings of %w", err)
	}
	masters := slices.DeleteFunc(nodes, func(n node) bool {
		return s.link.cluster && n[setRole] == "slave" // its settings don't matter until it becomes a master
	})
	if len(masters) == 0 {
		return store.Durability{}, errors.New("redisstore: no master answers")
	}
	return judge(masters, s.opts.AcceptLoss), nil
}

// readNode reads a server's settings.
func readNode(ctx context.Context, c rueidis.Client) (node, error) {
	var lacks []string
	told := func(command string, err error) error {
		if answerWord(err) == "NOPERM" {
			lacks = append(lacks, "+"+command)
		}
		if _, refused := rueidis.IsRedisErr(err); refused {
			return nil
		}
		return err
	}
	info, err := c.Do(ctx, c.B().Info().Build()).ToString()
	if err := told("info", err); err != nil {
		return nil, err
	}
	config, err := c.Do(ctx, c.B().ConfigGet().Parameter(setAppendOnly, setAppendFsync, setEviction, setMinReplicas).Build()).AsStrMap()
	if err := told("config|get", err); err != nil {
		return nil, err
	}
	f := infoFields(info)
	f[setEviction] = f["maxmemory_policy"]
	f[setAppendOnly] = map[string]string{"0": "no", "1": "yes"}[f["aof_enabled"]]
	n := node{setAOFStatus: cmp.Or(f[setAOFStatus], "ok"), rights: strings.Join(lacks, " ")}
	for _, name := range shown {
		n[name] = cmp.Or(config[name], f[name], "unknown")
	}
	return n, nil
}

// judge returns what a set of masters guarantees together.
func judge(nodes []node, accepted bool) store.Durability {
	d := store.Durability{Level: store.LevelDisk}
	unsafe := map[string]bool{}
	for _, n := range nodes {
		n.judge(accepted, func(level store.Level, why string) {
			if slices.Index(levels, level) < slices.Index(levels, d.Level) {
				d.Level = level
			}
			if why != "" {
				unsafe[why] = true
			}
		})
	}
	d.Unsafe = slices.Sorted(maps.Keys(unsafe))
	for _, name := range shown {
		values := map[string]bool{}
		for _, n := range nodes {
			values[n[name]] = true
		}
		d.Settings = append(d.Settings, store.Setting{Name: name, Value: strings.Join(slices.Sorted(maps.Keys(values)), ", ")})
	}
	return d
}

// levels lists the levels that a server can have; the first one guarantees least.
var levels = []store.Level{store.LevelProcess, store.LevelCache, store.LevelRelaxed, store.LevelDisk}

// judge calls has for every durability level that this server's settings limit it to, with the
// reason.
func (n node) judge(accepted bool, has func(level store.Level, why string)) {
	because := func(level store.Level, setting, why string) {
		if n[setting] == "unknown" && n[rights] != "" {
			why += ". The user may not ask for it: let an administrator run ACL SETUSER USER " + n[rights]
		}
		has(level, fmt.Sprintf("%s is %s: %s", setting, n[setting], why))
	}
	switch {
	case n[setAppendOnly] != "yes":
		because(store.LevelProcess, setAppendOnly, "when the server ends, its records are lost, and calls are executed again")
	case n[setAppendFsync] == "unknown":
		because(store.LevelProcess, setAppendFsync, "the server does not tell its settings, and records may be lost when it ends, and calls executed again")
	case n[setAppendFsync] != "always":
		// While a sync is late, the server answers before it writes, for up to two seconds.
		because(store.LevelRelaxed, setAppendFsync, "a crash of the machine, and of the server while its disk is slow, loses the last seconds of acknowledged records, and those calls are executed again")
	}
	if n[setEviction] != "noeviction" {
		because(store.LevelProcess, setEviction, "when memory is full the server drops records unasked, and those calls are executed again; it must be noeviction")
	}
	if n[setAOFStatus] != "ok" {
		because(store.LevelProcess, setAOFStatus, "the server can't write to its disk")
	}
	if n[setRole] != "master" {
		because(store.LevelCache, setRole, "a server that is no master may be behind")
	}
	setting := setCluster // a Cluster has replicas
	if n[setCluster] == "0" {
		setting = setReplicas
	}
	switch {
	case n[setting] == "0":
	case accepted:
		has(store.LevelCache, "")
	default:
		because(store.LevelCache, setting, "a failover loses acknowledged records that were not replicated yet, and those calls are executed again, unless the operator accepts it")
	}
}

// check returns why the store can't use the servers.
func (s *Store) check(ctx context.Context) error {
	for _, n := range s.link.nodes() { // a Cluster may have a node down
		// Some managed services forbid INFO; an unsuitable server then fails the first script.
		if info, err := n.Do(ctx, n.B().Info().Section("server").Build()).ToString(); err == nil {
			if err := checkServer(infoFields(info), s.link.cluster); err != nil {
				return err
			}
			break
		}
	}
	if err := s.checkPassword(); err != nil {
		return err
	}
	if err := s.checkRights(ctx); err != nil {
		return err
	}
	return s.checkFormat(ctx)
}

// checkFormat returns why this program can't use the stored data. It sets the number of the
// format if there is none, and leaves an existing one alone. A server that refuses writes
// refuses even that, so this also shows whether the server accepts writes.
func (s *Store) checkFormat(ctx context.Context) error {
	c := s.link.client()
	answers, err := s.ask(ctx, c, c.B().Set().Key(s.keys.format).Value(formatVersion).Nx().Get().Build())
	if err != nil {
		return err
	}
	format, err := answers[0].ToString()
	switch {
	case rueidis.IsRedisNil(err) || err == nil && format == formatVersion: // it was empty, or is ours
		s.indexed.Store(true)
		return nil
	case err == nil && format == firstFormat:
		return nil
	case isReadOnly(err):
		return fmt.Errorf("the server is a replica, which may be behind; use the address of the master: %w", err)
	case err != nil:
		return err
	default:
		return fmt.Errorf("the data under the prefix %q have the format %.20q, and this program knows up to %s: use the program that wrote them, or a later one", s.opts.Prefix, format, formatVersion)
	}
}

// CheckWrites is [store.WriteChecker.CheckWrites]. In a Cluster it asks the master of one
// slot.
func (s *Store) CheckWrites(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	err := s.checkFormat(ctx)
	if err == nil {
		err = s.checkRights(ctx)
	}
	if err != nil {
		return s.failed("ask whether writes are taken", err)
	}
	return nil
}

// checkServer returns why the store can't use a server, by what INFO says; if it says
// nothing, the server passes.
func checkServer(info map[string]string, cluster bool) error {
	// Valkey reports here the version of Redis that it is compatible with.
	if v := info["redis_version"]; v != "" {
		major, _, _ := strings.Cut(v, ".")
		if n, _ := strconv.Atoi(major); n < 7 {
			return fmt.Errorf("the server is Redis %s, and 7.0 is the oldest that will do", v)
		}
	}
	switch mode := cmp.Or(info["redis_mode"], info["server_mode"]); { // redis_mode is server_mode in Valkey
	case mode == "cluster" && !cluster:
		return errors.New("the server is part of a Cluster: its address begins with redis-cluster or rediss-cluster")
	case mode == "standalone" && cluster:
		return errors.New("the server is alone, in no Cluster: its address begins with redis or rediss")
	case mode == "sentinel":
		return errors.New("the server is a Sentinel, which keeps no data: its address begins with redis-sentinel or rediss-sentinel, and ends with the name of the master, as in redis-sentinel://host/mymaster")
	}
	return nil
}

// infoFields parses the answer of INFO.
func infoFields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
