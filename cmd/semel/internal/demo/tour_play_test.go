package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store"
)

// tour is one run of the tour: one storm for each door, against one Semel with all of
// them.
type tour struct {
	scene
	token, digest string

	mu sync.Mutex // guards what a restart of Semel changes
	at stage.Address
	// quiet is when it was certain that no killed process has any request under way.
	quiet store.Instant
}

// runTour visits all doors. An error means that it couldn't be completed. Processes and files
// are gone when it returns.
func runTour(ctx context.Context, opts Options) (report []doorReport, err error) {
	t := &tour{scene: newScene(opts)}
	t.token, t.digest = auth.NewToken()
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.startProvider(ctx); err != nil {
		return report, err
	}
	if err := t.startSemel(ctx); err != nil {
		return report, err
	}
	for _, d := range doors() {
		r, err := t.visit(ctx, d)
		if err != nil {
			return report, fmt.Errorf("%s: %w", d.name(), err)
		}
		report = append(report, r)
	}
	return report, nil
}

// startSemel starts Semel with all doors, for the first time or again. The toy service
// gives it an entrance of its own.
func (t *tour) startSemel(ctx context.Context) error {
	var at stage.Address
	a, err := t.client.post(ctx, t.provider.URL+"/entrances", nil, nil)
	if err == nil && !a.ok() {
		err = fmt.Errorf("the toy service has no entrance: %d %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &at)
	}
	if err != nil {
		return err
	}
	quiet := store.InstantOf(time.Now())
	if err := t.configure(at.URL); err != nil {
		return err
	}
	if err := t.startGuard(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.quiet = t.guard.Address, quiet
	return nil
}

// configure writes the configuration, for a toy service at an address.
func (t *tour) configure(upstream string) error {
	c := newSetup(t.dir, upstream)
	if t.opts.Unguarded {
		c.unguarded()
		return c.write()
	}
	c.guarded(t.digest)
	for _, d := range doors() {
		if err := d.configure(c); err != nil {
			return err
		}
	}
	return c.write()
}

// kill kills Semel, and starts it again on the same store.
func (t *tour) kill(ctx context.Context) (pid int, err error) {
	pid = t.guard.PID()
	t.guard.Kill()
	return pid, t.startSemel(ctx)
}

// current is what the last start of Semel has set.
func (t *tour) current() (guard stage.Address, quiet store.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at, t.quiet
}

// visit plays the storm of a door, and counts.
func (t *tour) visit(ctx context.Context, d door) (doorReport, error) {
	s := t.newStorm(d)
	if err := s.play(ctx); err != nil {
		return doorReport{}, err
	}
	charges, err := t.client.ledger(ctx, t.provider.URL, nil)
	if err != nil {
		return doorReport{}, err
	}
	s.count(charges)
	r := s.snapshot()
	r.judge()
	return r, nil
}
