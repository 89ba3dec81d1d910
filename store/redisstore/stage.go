package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// stageFrom is from how many bytes on the values of a batch are staged.
const stageFrom = 2 << 10

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
	bytes := 0
	for _, w := range batch {
		bytes += len(w.value)
	}
	if bytes >= stageFrom && !s.link.cluster {
		st := s.stages.take()
		answers, err := st.eval(ctx, conn, batch)
		if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
			s.stages.giveBack(st)
		} // or it may be carried out yet
		return answers, err
	}
	keys := make([]string, 0, 3*len(batch))
	args := append(make([]string, 0, 2+4*len(batch)), batch[0].token(), "")
	for _, w := range batch {
		keys, args = w.append(keys, args)
		args = append(args, w.value)
	}
	res := eval(ctx, conn, scriptWrite, keys, args)
	return res.ToArray()
}

// eval runs scriptWrite with values that are in keys: a transaction sets these, and
// the script gives each the name of its record.
//
// A crash before EXEC is carried out leaves nothing, and after it there is nothing left
// either: what the script did not take, because a write was not to be made or because the
// server does not know the script, the transaction deletes.
//
// In a Cluster, while a slot is moved, commands with a key that is not there are refused
// until it has moved, and staged ones never are there. So that is not done there.
func (st *stage) eval(ctx context.Context, c rueidis.CoreClient, batch []*write) ([]rueidis.RedisMessage, error) {
	names, values, keys := st.names[:len(batch)], st.values[:0], st.keys[:0]
	args := append(st.args[:0], batch[0].token(), "staged")
	for i, w := range batch {
		values = append(values, names[i], w.value)
		keys, args = w.append(keys, args)
		keys = append(keys, names[i])
	}
	st.values, st.keys, st.args = values, keys, args
	run := func(script rueidis.Completed) ([]rueidis.RedisMessage, error) {
		results := c.DoMulti(ctx, c.B().Multi().Build(),
			c.B().Arbitrary("MSET").Keys(values[0]).Args(values[1:]...).Build(),
			script,
			c.B().Del().Key(names...).Build(),
			c.B().Exec().Build())
		replies, err := results[len(results)-1].ToArray()
		if err != nil || len(replies) != 3 {
			return nil, refused(results)
		}
		return replies[1].ToArray()
	}
	answers, err := run(scriptWrite.byDigest(c.B(), keys, args))
	if isUnknownScript(err) {
		return run(scriptWrite.byText(c.B(), keys, args))
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

// stage is what a batch with staged values needs, and is used by one at a time.
type stage struct {
	names              []string // of keys
	values, keys, args []string // room for those of commands
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
