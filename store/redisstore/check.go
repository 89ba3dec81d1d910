package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// check says why the servers can't be used.
func (s *Store) check(ctx context.Context) error {
	c := s.link.client()
	var info string
	var err error
	for _, n := range s.link.nodes() { // one of a Cluster may be down
		info, err = n.Do(ctx, n.B().Info().Section("server").Build()).ToString()
		if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
			err = nil
			break
		}
	}
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	// Some managed services forbid INFO; then the first script will tell.
	if err := checkServer(infoFields(info), s.link.cluster); err != nil {
		return err
	}
	want := formatOf(len(s.keys.shards))
	format, err := c.Do(ctx, c.B().Set().Key(s.keys.format).Value(want).Nx().Get().Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err): // it was empty
		return nil
	case err != nil:
		if isReadOnly(err) {
			return errors.New("redisstore: the server is a replica, which may be behind: the address must be the master's")
		}
		return fmt.Errorf("redisstore: %w", err)
	case format == want:
		return nil
	case strings.HasPrefix(format, formatVersion+"/"):
		return fmt.Errorf("redisstore: the data under the prefix %q were written on servers of the other kind: those of a single server are in one shard, and those of a Cluster in %d", s.keys.prefix, clusterShards)
	default:
		return fmt.Errorf("redisstore: the data under the prefix %q have the format %.20q, and this program knows %s: use the program that wrote them, or a later one", s.keys.prefix, format, want)
	}
}

// checkServer says why a server that tells such things of itself can't be used.
func checkServer(info map[string]string, cluster bool) error {
	// Valkey says here which version of Redis it is like.
	if v := info["redis_version"]; v != "" {
		if major, _, _ := strings.Cut(v, "."); number(major) < 7 {
			return fmt.Errorf("redisstore: the server is Redis %s, and 7.0 is the oldest that will do", v)
		}
	}
	switch mode := cmp.Or(info["redis_mode"], info["server_mode"]); { // Valkey has another name for it
	case mode == "cluster" && !cluster:
		return errors.New("redisstore: the server is part of a Cluster: its address begins with redis-cluster or rediss-cluster")
	case mode == "sentinel":
		return errors.New("redisstore: the server is a Sentinel, which keeps no data")
	}
	return nil
}

// infoFields reads what INFO answers.
func infoFields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// number is a decimal number, or zero.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
