package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// entry is a record as an index of its shard names it.
type entry struct {
	shard  *shard
	digest string
	score  float64 // in the due index when, in the other the place
}

func (en *entry) record() string { return en.shard.records + en.digest }

func (en *entry) scoreText() string { return strconv.FormatFloat(en.score, 'f', 0, 64) }

// foreign reports whether an entry names no record.
func (en *entry) foreign() bool { return len(en.digest) != digestLen }

// forget is the run of scriptForget that removes the entries.
func (en *entry) forget() run {
	return run{keys: []string{en.shard.due, en.shard.born, en.record()}}
}

// look is what an entry leads to: a record, or why it can't be read. Neither: it is gone.
type look struct {
	entry *entry
	rec   *semel.Record
	bad   error
}

// early reports whether a due entry is too early for its record.
func (l look) early() bool {
	return l.rec != nil && (l.rec.NextAt == 0 || float64(micros(l.rec.NextAt)) > l.entry.score)
}

// read reads the records of entries, in their order. The error is for what kept all of
// them from being read.
func (s *Store) read(ctx context.Context, entries []entry) ([]look, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	c := s.link.client()
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult {
		cmds := make([]rueidis.Completed, len(entries))
		for i := range entries {
			cmds[i] = c.B().Get().Key(entries[i].record()).Build()
		}
		return c.DoMulti(ctx, cmds...)
	})
	if err != nil {
		return nil, s.failed("read", err)
	}
	looks := make([]look, len(entries))
	var gone []run
	for i, res := range results {
		en := &entries[i]
		looks[i].entry = en
		value, err := res.AsBytes()
		switch {
		case en.foreign():
			looks[i].bad = notOurs(en.shard.due, en.digest)
		case rueidis.IsRedisNil(err):
			gone = append(gone, en.forget())
		case isWrongType(err):
			looks[i].bad = fmt.Errorf("redisstore: the record %x: %w", en.digest, err)
		case err != nil:
			return nil, s.failed("read", err)
		default:
			looks[i].rec, looks[i].bad = s.decodeAt(c, en, value)
		}
	}
	if len(gone) > 0 {
		// Entries without a record are left when somebody else deletes records, or when the
		// server evicts them. What is not removed, because of a crash or an error, is
		// found to be gone again.
		_, _ = s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult { return evalAll(ctx, c, scriptForget, gone) })
	}
	return looks, nil
}

// isWrongType reports whether a key has something else than a record.
func isWrongType(err error) bool {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && strings.HasPrefix(e.Error(), "WRONGTYPE ")
}

// decodeAt reads the record that an entry names.
func (s *Store) decodeAt(c rueidis.Client, en *entry, value []byte) (*semel.Record, error) {
	head := min(headLen, len(value))
	rec, err := recordcodec.Decode(value[head:])
	if err == nil && string(appendDue(nil, rec.NextAt)) != string(value[:head]) {
		err = fmt.Errorf("%w: its head is another's", recordcodec.ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("redisstore: the record %x: %w", en.digest, err)
	}
	if d := rec.ID.Digest(); string(d[:]) != en.digest {
		s.link.replace(c)
		return nil, fmt.Errorf("redisstore: the record %x: %w", en.digest, errMixedUp)
	}
	return &rec, nil
}
