package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/service/config"
)

// Run serves until ctx is done, then stops: readiness drops, after limits.shutdown_delay
// listeners and idle connections close, and requests in flight get limits.shutdown_grace to
// finish. Semel then stops the rest and settles it by policy: released if nothing was certainly
// sent, otherwise unknown. Messages that are being delivered get the same grace; the others
// stay due. It closes the store. The error is nil if every outcome was recorded.
func (s *Server) Run(ctx context.Context) error {
	background, stopBackground := context.WithCancel(context.Background())
	defer stopBackground()
	var work sync.WaitGroup
	deliveries := s.outbox.run()
	work.Go(func() { _ = s.engine.Run(background, 0) })
	for _, run := range []func(context.Context){s.watchDurability, s.watchKeys, s.watchWrites, s.watchClock, s.watchAudit, s.observer.Run, s.figures.Run, s.gauges.census.Run} {
		work.Go(func() { run(background) })
	}
	work.Go(func() { s.dataAPI.Data() }) // early, so that no caller waits until they are made
	work.Go(func() { s.adminAPI.Admin() })
	signed := s.runEvidence()
	work.Go(func() { s.tell(s.notify.Watch(background, s.Healthy)) })

	failed := make(chan error, 2)
	go func() { failed <- s.data.serve() }()
	go func() { failed <- s.admin.serve() }()
	s.tell(s.notify.Ready())
	s.log.Info("serving", slog.String("listen", s.DataAddr().String()), slog.String("admin", s.AdminAddr().String()), slog.String("store", s.storeName), slog.String("version", s.version))

	var err error
	select {
	case <-ctx.Done():
		err = s.linger(failed)
	case err = <-failed:
	}
	return errors.Join(err, s.stop(stopBackground, &work, deliveries, signed))
}

// inBackground runs f until you call stop, and closes ended when it has returned: it ends only
// because it was stopped.
func inBackground(f func(context.Context) error) (stop func(), ended <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f(ctx) }()
	return stop, done
}

// linger goes on serving for limits.shutdown_delay, unready, so that nobody sends a request on a
// connection that is closed at that moment. It ends early if a listener fails.
func (s *Server) linger(failed <-chan error) error {
	s.stopping.Store(true)
	delay := time.Duration(s.current().cfg.Limits.ShutdownDelay)
	if delay == 0 {
		return nil
	}
	s.log.Info("not ready any more", slog.Duration("delay", delay))
	select {
	case err := <-failed:
		return err
	case <-time.After(delay):
		return nil
	}
}

func (s *Server) stop(stopBackground func(), work *sync.WaitGroup,
	deliveries func(grace context.Context) <-chan struct{}, signed func(context.Context) error,
) error {
	s.stopping.Store(true)
	s.tell(s.notify.Stopping())
	gen := s.current()
	grace := time.Duration(gen.cfg.Limits.ShutdownGrace)
	s.log.Info("stopping", slog.Duration("grace", grace))

	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	delivered := deliveries(ctx)
	if err := s.data.shutdown(ctx); err != nil {
		s.log.Warn("requests are still in flight: their outcome is settled by policy")
	}
	// Stop the calls that still run, and record how they end, which depends on how much of them
	// was sent. Their answers get some time to leave; callers who don't read them delay nothing.
	gens := []*generation{gen}
	s.former.Range(func(g, _ any) bool { gens = append(gens, g.(*generation)); return true })
	for _, g := range gens {
		for _, calls := range g.upstreams {
			calls.Interrupt()
		}
	}
	<-delivered
	leave, cancelLeave := context.WithTimeout(context.Background(), leaveTime)
	defer cancelLeave()
	end, cancelEnd := context.WithTimeout(context.Background(), settleTime)
	defer cancelEnd()
	_ = s.data.shutdown(leave)
	s.data.close()
	var errs []error
	for _, g := range gens {
		errs = append(errs, g.close(end))
	}
	s.writeBehind(ctx)
	stopBackground()
	work.Wait()
	s.warn("the last metrics could not be pushed", s.stopPush(end))
	s.warn("the last spans could not be pushed", s.stopTraces(end))
	s.dataAPI.Close()
	s.adminAPI.Close()
	s.admin.close()
	errs = append(errs, s.engine.Close(end), signed(end))
	if s.archive != nil {
		errs = append(errs, s.archive.Close())
	}
	errs = append(errs, s.store.Close())
	return errors.Join(errs...)
}

// writeBehind writes the counts and figures of deliveries, in the rest of the grace.
func (s *Server) writeBehind(grace context.Context) {
	if deadline, _ := grace.Deadline(); time.Until(deadline) < leastTime {
		var cancel context.CancelFunc
		grace, cancel = context.WithTimeout(context.Background(), leastTime)
		defer cancel()
	}
	figures := make(chan error, 1)
	go func() { figures <- s.figures.Close(grace) }()
	if lost := s.observer.Close(grace); lost != nil {
		s.log.Warn("not all that was counted could be written within the grace", slog.String("lost", strings.ReplaceAll(lost.Error(), "\n", ", ")))
	}
	s.warn("the figures since the last write are lost", <-figures)
}

const (
	settleTime = 5 * time.Second // a stop waits so long, after the grace, for the ends of attempts
	leaveTime  = 3 * time.Second // in this part of it answers can leave
	// leastTime is what writeBehind gets where requests have used up the grace: only the
	// counts of the last seconds remain, which a store that answers takes at once.
	leastTime = time.Second
)

// Reload reads the configuration again and applies it, all or nothing. It reports whether
// anything changed. A change of something fixed, such as the listeners and the store, is
// an error that names it.
func (s *Server) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if s.load == nil {
		return false, errors.New("the service was started without a configuration file to read again")
	}
	s.tell(s.notify.Reloading())
	defer func() {
		s.reloadFailed.Store(err != nil)
		s.tell(s.notify.Ready())
	}()
	cfg, err := s.load()
	if err != nil {
		return false, err
	}
	old := s.current()
	diff := config.Diff(old.cfg, cfg)
	if len(diff) == 0 {
		return false, nil
	}
	if fixed := config.NeedsRestart(diff); len(fixed) > 0 {
		return false, fmt.Errorf("changing %s needs a restart", strings.Join(fixed, ", "))
	}
	next, commit, err := s.build(cfg)
	if err != nil {
		return false, err
	}
	s.former.Store(old, nil) // before it is replaced, so that a stop finds it
	s.mu.Lock()
	s.gen = next
	s.mu.Unlock()
	commit()
	go func() { _ = old.close(context.Background()); s.former.Delete(old) }() // however long its requests take
	s.log.Info("reloaded", slog.Any("changed", diff))
	return true, nil
}

// current is the configuration in force; it may be replaced meanwhile.
func (s *Server) current() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gen
}

// enter is the configuration in force, for one request. Call inFlight.Done when you are done.
func (s *Server) enter() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.gen.inFlight.Add(1)
	return s.gen
}

func (s *Server) tell(err error) { s.warn("the service manager could not be notified", err) }

func (s *Server) warn(what string, err error) {
	if err != nil {
		s.log.Warn(what, slog.Any("error", err))
	}
}
