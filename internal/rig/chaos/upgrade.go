//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// mayRefuse reports whether calls of an operation may be refused for good, where nodes run an
// earlier program or don't. It forgot the refusal of a number when a later one began, and that of
// an owner when strangers used the key.
func mayRefuse(op string, earlier bool) bool {
	return !earlier || !rules[op].Numbered && !rules[op].Shared
}

// upgrade replaces the earlier program of the nodes by the present one, as docs/upgrade.md
// says: one node after the other or, where a migration renames, after all have stopped. Half of
// the time remains for calls that only the present program has. It doesn't end with the load,
// because no node may be left behind. From then on everything may be refused.
func (r *run) upgrade(ctx context.Context, s *injector) (err error) {
	if r.opts.Earlier == "" {
		return nil
	}
	defer func() {
		r.earlier.Store(false)
		_ = json.NewEncoder(r.upstream.running().Stdin).Encode(r.upstreamConfig(0)) // or it is being started again
	}()
	if r.ground.stopToUpgrade {
		stage.Pause(ctx, r.opts.Duration/2)
		var starts []func() error
		for i, n := range r.nodes {
			s.take(n.name)
			defer s.release(n.name)
			n.stop(recoveryTimeout)
			r.log.Earlier(i+1, now())
			n.binary.Store(&r.opts.Binary)
			starts = append(starts, n.start)
		}
		r.tell("all nodes are replaced")
		for i, start := range starts {
			err = errors.Join(err, start(), r.nodes[i].await(recoveryTimeout))
		}
		return err
	}
	for i, n := range r.nodes {
		stage.Pause(ctx, r.opts.Duration/time.Duration(2*len(r.nodes)))
		s.take(n.name)
		n.binary.Store(&r.opts.Binary)
		r.tell(fmt.Sprintf("%s is replaced", n.name))
		// A fault of the store may keep it from starting for a while.
		if err := n.restart(); err != nil {
			r.tell(fmt.Sprintf("%s: %v", n.name, err))
		}
		r.log.Earlier(i+1, now())
		s.release(n.name)
	}
	return nil
}
