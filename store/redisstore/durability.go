package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// unknown is the value of a setting that the server does not tell.
const unknown = "unknown"

// The settings that durability is judged by.
const (
	setAppendOnly  = "appendonly"
	setAppendFsync = "appendfsync"
	setEviction    = "maxmemory-policy"
	setMinReplicas = "min-replicas-to-write"
	setRole        = "role"
	setReplicas    = "connected_slaves"
	setCluster     = "cluster_enabled"
	setAOFStatus   = "aof_last_write_status"
)

// node is one server's settings.
type node map[string]string

// Durability is [semel.DurabilityStore.Durability]: what the settings of the
// masters promise, judged by the weakest. Settings that differ are listed with
// all their values. Where CONFIG is forbidden, as on many managed services, INFO
// tells a part; what stays unknown counts as the worst it can be.
//
// With replicas, and in a Cluster, the level is [semel.LevelCache] whatever else is
// set: min-replicas-to-write makes the window smaller in which a master that was
// cut off acknowledges what is lost, but [semel.LevelCachePlus] takes a WAIT after
// each write too, which this store does not send: it would stop the connection that
// all callers share, and the window would still be open.
func (s *Store) Durability(ctx context.Context) (semel.Durability, error) {
	if err := s.enter(); err != nil {
		return semel.Durability{}, err
	}
	defer s.leave()
	var mu sync.Mutex
	var nodes []node
	var failed error
	s.link.onEach(ctx, func(ctx context.Context, addr string, c rueidis.Client) {
		n, err := readNode(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			failed = fmt.Errorf("redisstore: the settings of %s: %w", addr, err)
		case s.link.cluster && n[setRole] == "slave":
			// Its settings matter when it has become a master.
		default:
			nodes = append(nodes, n)
		}
	})
	if len(nodes) == 0 {
		return semel.Durability{}, cmp.Or(failed, errors.New("redisstore: no server is a master"))
	}
	return judge(nodes, s.opts.AcceptLoss), nil
}

// readNode asks a server for its settings.
func readNode(ctx context.Context, c rueidis.Client) (node, error) {
	n := node{
		setAppendOnly: unknown, setAppendFsync: unknown, setEviction: unknown, setMinReplicas: unknown,
		setRole: unknown, setReplicas: unknown, setCluster: unknown,
	}
	refused := func(err error) bool {
		_, ok := rueidis.IsRedisErr(err)
		return ok
	}
	for _, section := range []string{"persistence", "memory", "replication", "cluster"} {
		info, err := c.Do(ctx, c.B().Info().Section(section).Build()).ToString()
		if err != nil && !refused(err) {
			return nil, err
		}
		f := infoFields(info)
		for _, name := range []string{setRole, setReplicas, setCluster, setAOFStatus} {
			if v := f[name]; v != "" {
				n[name] = v
			}
		}
		if v := f["maxmemory_policy"]; v != "" {
			n[setEviction] = v
		}
		if v := f["aof_enabled"]; v != "" {
			n[setAppendOnly] = map[string]string{"0": "no", "1": "yes"}[v]
		}
	}
	for _, name := range []string{setAppendOnly, setAppendFsync, setEviction, setMinReplicas} {
		m, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil && !refused(err) {
			return nil, err
		}
		if v := m[name]; v != "" {
			n[name] = v
		}
	}
	return n, nil
}

// judge is the level of a set of masters.
func judge(nodes []node, accepted bool) semel.Durability {
	d := semel.Durability{Level: semel.LevelDisk}
	unsafe := map[string]bool{}
	for _, n := range nodes {
		level, sentences := n.judge(accepted)
		if order(level) < order(d.Level) {
			d.Level = level
		}
		for _, sentence := range sentences {
			unsafe[sentence] = true
		}
	}
	d.Unsafe = slices.Sorted(maps.Keys(unsafe))
	for _, name := range []string{setAppendOnly, setAppendFsync, setEviction, setMinReplicas, setRole, setReplicas, setCluster} {
		var values []string
		for _, n := range nodes {
			if !slices.Contains(values, n[name]) {
				values = append(values, n[name])
			}
		}
		slices.Sort(values)
		d.Settings = append(d.Settings, semel.Setting{Name: name, Value: strings.Join(values, ", ")})
	}
	return d
}

// judge is the level of one server, and why it is not safe.
func (n node) judge(accepted bool) (level semel.Level, unsafe []string) {
	level = semel.LevelDisk
	at := func(l semel.Level, format string, args ...any) {
		if order(l) < order(level) {
			level = l
		}
		if format != "" {
			unsafe = append(unsafe, fmt.Sprintf(format, args...))
		}
	}
	if v := n[setAppendOnly]; v != "yes" {
		at(semel.LevelProcess, "%s is %s: when the server ends, its records are lost, and calls are executed again", setAppendOnly, v)
	} else if v := n[setAppendFsync]; v == unknown {
		at(semel.LevelProcess, "%s is unknown, because the server does not tell its settings: records may be lost when it ends, and calls executed again", setAppendFsync)
	} else if v != "always" {
		at(semel.LevelRelaxed, "%s is %s: a crash of the machine, and of the server while its disk is slow, loses the last seconds of acknowledged records, and those calls are executed again", setAppendFsync, v)
	}
	if v := n[setEviction]; v != "noeviction" {
		at(semel.LevelProcess, "%s is %s: when memory is full the server drops records unasked, and those calls are executed again; it must be noeviction", setEviction, v)
	}
	if v := n[setAOFStatus]; v != "" && v != "ok" {
		at(semel.LevelProcess, "%s is %s: the server can't write to its disk", setAOFStatus, v)
	}
	if v := n[setRole]; v != "master" {
		at(semel.LevelCache, "%s is %s: a server that is no master may be behind", setRole, v)
	}
	loss := "%s is %s: a failover loses acknowledged records that were not replicated yet, and those calls are executed again, unless the operator accepts it"
	if accepted {
		loss = ""
	}
	if v := n[setCluster]; v != "0" {
		at(semel.LevelCache, loss, setCluster, v)
	} else if v := n[setReplicas]; v != "0" {
		at(semel.LevelCache, loss, setReplicas, v)
	}
	return level, unsafe
}

// order is how much a level promises.
func order(l semel.Level) int {
	return slices.Index([]semel.Level{
		semel.LevelProcess, semel.LevelCache, semel.LevelCachePlus, semel.LevelRelaxed, semel.LevelDisk, semel.LevelReplicated,
	}, l)
}
