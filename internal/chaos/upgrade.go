//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/semelhq/semel/internal/history"
	"github.com/semelhq/semel/internal/stage"
)

// rulesFrom are the promises of the operations in a run that begins with an earlier program, or
// with none.
func rulesFrom(earlier string) map[string]history.Rules {
	all := maps.Clone(rules)
	for op, r := range all {
		r.OneRecord = r.Numbered && earlier != ""
		all[op] = r
	}
	return all
}

// mayRefuse reports whether calls of an operation may be refused for good. The earlier program
// forgot the refusal of a number when a later one began, and that of an owner when strangers used
// the key.
func mayRefuse(op string, earlier bool) bool {
	return !earlier || !rules[op].Numbered && !rules[op].Shared
}

// upgrade replaces the earlier program of the nodes by the present one, as docs/upgrade.md says:
// one node after the other or, where a migration renames, after all have stopped. It doesn't end
// with the load, because no node may be left behind.
func (r *run) upgrade(ctx context.Context, s *injector) (err error) {
	if r.opts.Earlier == "" {
		return nil
	}
	if r.ground.stopToUpgrade {
		stage.Pause(ctx, r.opts.Duration/2)
		var starts []func() error
		for _, n := range r.nodes {
			s.take(n.name)
			defer s.release(n.name)
			n.stop(recoveryTimeout)
			n.binary.Store(&r.opts.Binary)
			starts = append(starts, n.start)
		}
		r.tell("all nodes are replaced")
		for i, start := range starts {
			err = errors.Join(err, start(), r.nodes[i].await(recoveryTimeout))
		}
		return err
	}
	for _, n := range r.nodes {
		stage.Pause(ctx, r.opts.Duration/time.Duration(len(r.nodes)+1))
		s.take(n.name)
		n.binary.Store(&r.opts.Binary)
		r.tell(fmt.Sprintf("%s is replaced", n.name))
		// A fault of the store may keep it from starting for a while.
		if err := n.restart(); err != nil {
			r.tell(fmt.Sprintf("%s: %v", n.name, err))
		}
		s.release(n.name)
	}
	return nil
}
