//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/history"
	"github.com/semelhq/semel/internal/stage"
)

// settle asks every node about every call until the answer is final. If a call may still
// run it is run, because the asker is a client like all others. After the limit nothing is
// asked again that can't be answered yet, but on a busy machine there may be calls by then
// that nobody has asked about.
func (r *run) settle(ctx context.Context, limit time.Duration) {
	end := time.Now().Add(limit)
	keys := make(chan string)
	var askers sync.WaitGroup
	for range 16 {
		askers.Go(func() {
			for key := range keys {
				for node := range r.here.nodes {
					r.settleKey(ctx, key, node+1, end)
				}
			}
		})
	}
	for _, key := range r.log.Keys() {
		keys <- key
	}
	close(keys)
	askers.Wait()
}

// settleKey asks one node about one call, again until the end.
func (r *run) settleKey(ctx context.Context, name string, node int, end time.Time) {
	over := func() bool { return ctx.Err() != nil || time.Now().After(end) }
	op, key, _ := strings.Cut(name, "/")
	a := &attempt{worker: r.here, made: map[int64]string{}, rng: rand.New(rand.NewPCG(r.opts.Seed, 8)), job: job{End: history.Complete}}
	a.d = delivery{op: op, key: key, payload: 1, final: true}
	for {
		var got answer
		if rules[op].Routed {
			got = a.call(&a.d, node, 0)
		} else {
			got = a.begin(&a.d, node)
		}
		switch got.word {
		case history.Execute:
			a.execute(ctx, got)
			continue
		case history.Conflict:
			if a.d.payload++; a.d.payload <= 2 {
				continue
			}
			return
		case history.Held:
			if rules[op].Asked && len(r.log.Effects(name)) > 0 && !over() {
				break // the reconciler will settle it
			}
			r.log.Add(history.Event{
				At: now(), Kind: history.Reason, Key: name, Node: node, Final: true, Text: r.here.heldReason(node, got.link),
			})
			return
		case history.Replay, history.Answered, history.Gone:
			return
		}
		if over() {
			return
		}
		stage.Pause(ctx, max(got.after/4, 200*time.Millisecond))
	}
}
