package redisstore

import (
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
	info, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if _, answered := rueidis.IsRedisErr(err); err != nil && !answered {
		return fmt.Errorf("redisstore: %w", err)
	}
	// Some managed services forbid INFO; then the first script will tell.
	fields := infoFields(info)
	if v := fields["redis_version"]; v != "" {
		if major, _, _ := strings.Cut(v, "."); number(major) < 7 {
			return fmt.Errorf("redisstore: the server is Redis %s, and 7.0 is the oldest that will do", v)
		}
	}
	if mode := fields["redis_mode"]; mode == "cluster" && !s.link.cluster {
		return errors.New("redisstore: the server is part of a Cluster: its address begins with redis-cluster or rediss-cluster")
	} else if mode == "sentinel" {
		return errors.New("redisstore: the server is a Sentinel, which keeps no data")
	}
	format, err := c.Do(ctx, c.B().Set().Key(s.keys.format).Value(formatVersion).Nx().Get().Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err): // it was empty
		return nil
	case err != nil:
		if e, ok := rueidis.IsRedisErr(err); ok && isReadOnly(e) {
			return errors.New("redisstore: the server is a replica, which may be behind: the address must be the master's")
		}
		return fmt.Errorf("redisstore: %w", err)
	case format != formatVersion:
		return fmt.Errorf("redisstore: the data under the prefix %q have the format %.20q, and this program knows %s: use the program that wrote them, or a later one", s.keys.prefix, format, formatVersion)
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
