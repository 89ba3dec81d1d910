package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// play has bob's server deliver the activities of reports, each several times and in random
// order, while the inbox is restarted.
func play(ctx context.Context, dir string, t *tracker, reports, copies int) (_ *summary, err error) {
	s, err := newSender()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := start(dir, t)
	if err != nil {
		return nil, err
	}
	s.inbox.Store(&r.address)

	deliveries := rand.Perm(2 * reports * copies)
	for i := range deliveries {
		deliveries[i] %= 2 * reports
	}
	half := len(deliveries) / 2
	s.deliver(ctx, deliveries[:half])
	if err := r.close(); err != nil {
		return nil, err
	}
	if r, err = start(dir, t); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s.inbox.Store(&r.address)
	s.deliver(ctx, deliveries[half:])

	sum := &summary{Reports: reports, Activities: 2 * reports, Deliveries: len(deliveries), Restarts: 1}
	if sum.Refused, err = s.forge(ctx); err != nil {
		return nil, err
	}
	if sum.Conflicts, err = s.change(ctx); err != nil {
		return nil, err
	}
	for !t.done(reports) {
		select { // what was taken is handled soon
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	sum.HungUp = int(s.hungUp.Load())
	return sum, nil
}
