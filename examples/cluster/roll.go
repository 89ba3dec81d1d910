package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// roll restarts the nodes properly, one after the other, while orders come in: each gets
// SIGTERM, finishes its requests, and is started again. The next one follows after some
// more answers.
func roll(ctx context.Context, nodes []*node, restarts int, answers *atomic.Int64) (meanwhile int64, err error) {
	const between = 100 // answers
	for i := range restarts {
		before := answers.Load()
		if err := nodes[i%len(nodes)].restart(); err != nil {
			return meanwhile, fmt.Errorf("restart %d: %w", i+1, err)
		}
		after := answers.Load()
		meanwhile += after - before
		if err := await(ctx, func() bool { return answers.Load() >= after+between }); err != nil {
			return meanwhile, err
		}
	}
	return meanwhile, nil
}

// await looks again and again until it is true.
func await(ctx context.Context, is func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
