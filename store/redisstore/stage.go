package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// stageFrom is from how many bytes on a value is staged: where a server with an
// append-only file is faster with that. One without a file is from half a KiB on.
const stageFrom = 3 << 9

// evalWrites runs scriptWrite.
func (s *Store) evalWrites(ctx context.Context, c rueidis.Client, batch []*write) ([]rueidis.RedisMessage, error) {
	conn := rueidis.CoreClient(c)
	if len(batch) > 1 && !s.link.cluster {
		// Whoever waits reads the answer of a connection of its own. On one that is
		// shared two other goroutines would have to wake up in between.
		dedicated, release := c.Dedicate()
		defer release()
		conn = dedicated
	}
	st := s.stages.take()
	// In a Cluster, while a slot is moved, commands with a key that is not there are
	// refused until it has moved, and staged ones never are there.
	st.fill(batch, !s.link.cluster)
	answers, err := st.eval(ctx, conn)
	if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
		s.stages.giveBack(st)
	} // or it may be carried out yet
	return answers, err
}

// fill makes the command that runs scriptWrite, and the values that it finds in keys.
func (st *stage) fill(batch []*write, staging bool) {
	sh := batch[0].shard
	st.keys = append(st.keys[:0], sh.due, sh.new)
	st.args = append(st.args[:0], batch[0].token())
	st.values, st.staged = st.values[:0], 0
	for _, w := range batch {
		st.keys = append(st.keys, w.record)
		if !staging || len(w.value) < stageFrom {
			st.args = append(st.args, w.expect, w.at, w.value)
			continue
		}
		name := st.names[st.staged]
		st.staged++
		st.values = append(st.values, name, w.value)
		st.keys = append(st.keys, name)
		st.args = append(st.args, w.expect, w.at, "")
	}
}

// eval runs scriptWrite, if there are staged values in a transaction that sets these;
// the script gives each the name of its record.
//
// A crash before EXEC is carried out leaves nothing, and after it there is nothing left
// either: what the script did not take, because a write was not to be made or because the
// server does not know the script, the transaction deletes.
func (st *stage) eval(ctx context.Context, c rueidis.CoreClient) ([]rueidis.RedisMessage, error) {
	if st.staged == 0 {
		res := eval(ctx, c, scriptWrite, st.keys, st.args)
		return res.ToArray()
	}
	run := func(script rueidis.Completed) ([]rueidis.RedisMessage, error) {
		results := c.DoMulti(ctx, c.B().Multi().Build(),
			c.B().Arbitrary("MSET").Keys(st.values[0]).Args(st.values[1:]...).Build(),
			script,
			c.B().Del().Key(st.names[:st.staged]...).Build(),
			c.B().Exec().Build())
		replies, err := results[len(results)-1].ToArray()
		if err != nil || len(replies) != 3 {
			return nil, refused(results)
		}
		return replies[1].ToArray()
	}
	answers, err := run(scriptWrite.byDigest(c.B(), st.keys, st.args))
	if isUnknownScript(err) {
		return run(scriptWrite.byText(c.B(), st.keys, st.args))
	}
	return answers, err
}

// refused is why a transaction was not carried out: the first command that was refused
// says more than EXEC, which repeats that one was.
func refused(results []rueidis.RedisResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil {
			return err
		}
	}
	return errors.New("no answer to a transaction")
}

// stage is what a batch needs, and is used by one at a time.
type stage struct {
	names  []string // of keys for values
	staged int      // how many of them are used
	values []string // those names, each with its value
	keys   []string // of the script
	args   []string
}

// stages has those that are free. Names of one stage are in no other, of whatever process,
// so that no batch takes another's values even where a server ignores that they belong to
// a transaction. They are used again: names that a server has just seen cost it less than
// new ones.
type stages struct {
	base string // what the names of this Store begin with

	mu   sync.Mutex
	free []*stage
	made uint64
}

// take returns one for a batch.
func (s *stages) take() *stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		st := s.free[n-1]
		s.free = s.free[:n-1]
		return st
	}
	s.made++
	base := s.base + strconv.FormatUint(s.made, 36) + "."
	st := &stage{names: make([]string, maxBatch)}
	for i := range st.names {
		st.names[i] = base + strconv.Itoa(i)
	}
	return st
}

// giveBack takes back that of a batch that was answered.
func (s *stages) giveBack(st *stage) {
	for _, texts := range [][]string{st.values, st.keys, st.args} {
		clear(texts) // or they would keep the memory of large values
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, st)
}
