package redisstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/terms"
)

// hasIndex reports whether searches may rely on the index of attributes. Until they may, it
// asks the server: another process may have completed the index.
func (s *Store) hasIndex(ctx context.Context) (bool, error) {
	if !s.indexed.Load() {
		if err := s.checkFormat(ctx); err != nil {
			return false, err
		}
	}
	return s.indexed.Load(), nil
}

// Migrate raises the stored data to the newest format: it adds records without entries to the
// index of attributes, so that searches find them. It reports whether there was anything to do.
// Programs that know format 1 only refuse the data afterwards, so no such program may be
// running: it would write records that aren't found.
//
// A crash leaves format 1, and some entries; Migrate begins again.
func Migrate(ctx context.Context, address string, opts *Options) (bool, error) {
	s, err := Open(ctx, address, opts)
	if err != nil {
		return false, err
	}
	defer s.Close()
	if s.indexed.Load() {
		return false, nil
	}
	if err := s.migrate(ctx); err != nil {
		return false, s.failed("migrate", err)
	}
	return true, nil
}

func (s *Store) migrate(ctx context.Context) error {
	c := s.link.client()
	for i := range s.keys.shards { // left by earlier programs of records that they purged
		answers, err := s.ask(ctx, c, c.B().Unlink().Key(s.keys.shards[i].attributes).Build())
		if err == nil {
			err = answers[0].Error()
		}
		if err != nil {
			return err
		}
	}
	const page = 256 // as many as a sweep reads
	var last *entry
	for more := true; more; {
		found, _, others, err := s.entries(ctx, byCreation, last, page)
		if err != nil {
			return err
		}
		var looks []look
		budget := paging.New(ctx)
		if looks, more, err = s.read(ctx, found, others, page, &budget); err != nil {
			return err
		}
		var runs []run
		for _, l := range looks {
			last = l.entry
			if l.rec == nil {
				continue // it is gone, or unreadable and so can't be found
			}
			if list := terms.Of(l.rec.Attributes); list != nil {
				// It doesn't matter if its attributes have changed meanwhile: that write stored
				// their entries.
				runs = append(runs, run{[]string{last.record(), last.shard.created, last.shard.attributes}, []string{joined(list)}})
			}
		}
		if _, err := s.evalAll(ctx, scriptIndex, runs); err != nil {
			return err
		}
	}
	answers, err := s.ask(ctx, c, c.B().Set().Key(s.keys.format).Value(formatVersion).Build())
	if err == nil {
		err = answers[0].Error()
	}
	if err != nil {
		return fmt.Errorf("raise the format: %w", err)
	}
	return nil
}
