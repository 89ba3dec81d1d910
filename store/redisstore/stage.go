package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// stageFrom is from how many bytes on a value is staged: where a server with an
// append-only file is faster with that. One without a file is from half a KiB on.
const stageFrom = 3 << 9

// evalWrites runs scriptWrite, and returns what it answers and the token that it must
// answer with.
func (s *Store) evalWrites(c rueidis.Client, batch []*write) (token string, answers []any, err error) {
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
	if err := st.fill(batch, !s.link.cluster); err != nil {
		return "", nil, err
	}
	// Whoever waits for a write has a context; what was sent has not, see [batcher].
	ctx := context.Background()
	token = s.token()
	msg, err := st.eval(ctx, conn, scriptWrite.byDigest, token)
	if isUnknownScript(err) {
		// It was not run. The server keeps the text of one that is sent with it.
		token = s.token()
		msg, err = st.eval(ctx, conn, scriptWrite.byText, token)
	}
	if _, answered := errors.AsType[*rueidis.RedisError](err); err == nil || answered {
		s.stages.giveBack(st)
	} // or it may be carried out yet
	if err != nil {
		return token, nil, err
	}
	answer, err := msg.ToAny()
	if err != nil {
		return token, nil, err
	}
	answers, _ = answer.([]any)
	return token, answers, nil
}

// fill makes the command that runs scriptWrite, and the values that it finds in keys.
func (st *stage) fill(batch []*write, staging bool) error {
	sh := batch[0].shard
	st.keys = append(st.keys[:0], sh.due, sh.new)
	st.args = append(st.args[:0], "")
	st.values, st.staged = st.values[:0], 0
	for _, w := range batch {
		if w.shard != sh {
			return notApplied(errors.New("a run has writes of two shards")) // whose keys are in two slots
		}
		st.keys = append(st.keys, w.record)
		value := w.value
		if staging && len(value) >= stageFrom {
			name := st.names[st.staged]
			st.staged++
			st.values = append(st.values, name, value)
			st.keys, value = append(st.keys, name), ""
		}
		st.args = append(st.args, w.expect, w.at, value, w.deadline)
	}
	return nil
}

// eval runs scriptWrite, if there are staged values in a transaction that sets these;
// the script gives each the name of its record.
//
// A crash before EXEC is carried out leaves nothing, and after it there is nothing left
// either: what the script did not take, because a write was not to be made or because the
// server does not know the script, the transaction deletes.
func (st *stage) eval(ctx context.Context, c rueidis.CoreClient, script func(b rueidis.Builder, keys, args []string) rueidis.Completed, token string) (rueidis.RedisMessage, error) {
	st.args[0] = token
	cmd := script(c.B(), st.keys, st.args)
	if st.staged == 0 {
		return c.Do(ctx, cmd).ToMessage()
	}
	results := c.DoMulti(ctx, c.B().Multi().Build(),
		c.B().Arbitrary("MSET").Keys(st.values[0]).Args(st.values[1:]...).Build(),
		cmd,
		c.B().Del().Key(st.names[:st.staged]...).Build(),
		c.B().Exec().Build())
	replies, err := results[len(results)-1].ToArray()
	if err != nil {
		return rueidis.RedisMessage{}, discarded(results, err)
	}
	if len(replies) != 3 {
		return rueidis.RedisMessage{}, errMixedUp
	}
	return replies[1], replies[1].Error()
}

// discarded is why a transaction was not carried out. When the server says that it has
// discarded it, the first command that was refused says more. Anything else proves
// nothing: where MULTI was refused, the script has run without it.
func discarded(results []rueidis.RedisResult, err error) error {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return err // the connection's
	}
	if !strings.HasPrefix(e.Error(), "EXECABORT ") {
		return fmt.Errorf("a transaction was not carried out as one: %v", err)
	}
	for _, r := range results[:len(results)-1] {
		if first := r.Error(); first != nil {
			return notApplied(first)
		}
	}
	return notApplied(err)
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
// new ones. There are as many as runs have been on their way at a time.
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
