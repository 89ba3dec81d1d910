package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/service/limit"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/internal/service/notify"
	"github.com/semelhq/semel/store/pebblestore"
)

// Options configures a [Server].
type Options struct {
	// Config is the configuration to start with. Required.
	Config *config.Config
	// Load reads the configuration again for a reload. Nil: reloads are refused.
	Load func() (*config.Config, error)
	// Log defaults to [slog.Default].
	Log *slog.Logger
	// Version is the program's version, which /readyz?verbose, the log and the metrics tell.
	// Defaults to "unknown".
	Version string
	// Traces gets the spans of deliveries, in place of the collector that the configuration
	// or the environment names. Optional.
	Traces trace.TracerProvider
}

// Server is one running service. Its methods may be called concurrently.
type Server struct {
	log            *slog.Logger
	load           func() (*config.Config, error)
	store          semel.Store
	storeName      string
	version        string
	engine         *semel.Engine
	observer       *api.Observer
	figures        *figures.Figures
	metrics        *metrics.Metrics
	gauges         gauges
	stopPush       func(context.Context) error
	stopTraces     func(context.Context) error
	dataAPI        *api.API
	adminAPI       *api.API
	metricsHandler http.Handler
	executions     http.Handler  // the execution API of the data listener
	archive        io.Closer     // nil if there is none to close
	archives       bool          // there is an archive
	evidence       *evidence.Log // nil if there is none
	outbox         *outbox       // nil without destinations
	budget         *limit.Budget
	notify         *notify.Notifier

	data, admin  *listener
	stopping     atomic.Bool
	reading      atomic.Pointer[durabilityReading]
	tight        atomic.Bool // the disk of the store has little room
	lastSweep    atomic.Pointer[semel.Event]
	reloadFailed atomic.Bool  // the last one
	sweptAt      atomic.Int64 // when a sweep ended without trouble, in Unix milliseconds

	reloading sync.Mutex
	mu        sync.RWMutex
	gen       *generation
}

var (
	errStopping = errors.New("the service is stopping")
	errNoReload = errors.New("the service was started without a configuration file to read again")
)

// purgeRate is how many expired records a second are removed: about what a store writes
// without keeping calls waiting.
const purgeRate = 1000

// New checks the configuration ([Check]), opens the store and the listeners, and puts
// everything together. It serves nothing before [Server.Run]. After an error everything is
// closed again.
func New(ctx context.Context, opts Options) (_ *Server, err error) {
	cfg := opts.Config
	if err := Check(cfg); err != nil {
		return nil, err
	}
	s := &Server{log: cmp.Or(opts.Log, slog.Default()), load: opts.Load, storeName: cfg.Store.Name(), version: cmp.Or(opts.Version, "unknown")}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if s.notify, err = notify.FromEnv(); err != nil {
		return nil, err
	}
	if s.store, err = openStoreWith(ctx, cfg.Store, &pebblestore.Options{Logger: s.log}); err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.store.Close() })
	s.watchRoom()
	if p := s.readDurability(ctx); len(p.Unsafe) > 0 {
		s.log.Warn("the store is not safe for every use", slog.String("durability", string(p.Level)), slog.Any("unsafe", p.Unsafe))
	}
	if s.budget, err = newBudget(&cfg.Limits); err != nil {
		return nil, err
	}
	s.observer, s.figures = api.NewObserver(s.store), figures.New(s.store, nil)
	s.metrics = metrics.New(s.gauge)
	s.metricsHandler = s.metrics.Handler()
	s.gauges.census, s.gauges.version = metrics.NewCensus(s.store), s.version
	tracing, err := s.traces(ctx, &opts)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.stopTraces(context.Background()) })
	engineOpts := &semel.Options{
		Events:        allOf(tracing.Events(), observe(s.log), door.Log(s.log, slog.LevelInfo), s.observer.Events(), s.figures.Events(), s.metrics.Events(), &semel.Events{Swept: s.noteSweep}),
		PurgeInterval: time.Duration(cfg.Purge.Interval), PurgeRate: purgeRate,
		Quotas: quotasOf(&cfg.Quotas),
	}
	if s.archives = cfg.Archives(); s.archives {
		if engineOpts.Archive, s.archive, err = OpenArchive(cfg.Archive, s.store); err != nil {
			return nil, err
		}
		if s.archive != nil {
			undo = append(undo, func() { s.archive.Close() })
		}
	}
	if s.evidence, err = OpenEvidence(&cfg.Evidence, s.store, s.log); err != nil {
		return nil, err
	}
	if engineOpts.Witness = witness(s.evidence); s.evidence != nil {
		engineOpts.Events = allOf(engineOpts.Events, &semel.Events{Erased: s.evidence.Erased})
	}
	if s.engine, err = semel.New(s.metrics.Store(s.store), engineOpts); err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.engine.Close(context.Background()) })
	if _, err = s.engine.Internal().LoadEpoch(ctx); err != nil {
		return nil, err
	}
	if s.gen, _, err = s.build(cfg); err != nil {
		return nil, err
	}
	if s.outbox, err = newOutbox(s.engine, &cfg.Dispatch, s.destinations(s.gen), tracing.Dispatched(s.metrics.Dispatched(observeMessages(s.log)))); err != nil {
		return nil, err
	}
	if cfg.Auth.Configured() && cfg.OpenAdmin() {
		s.log.Warn("no operator is named, so every program on this machine is one at the admin listener: set admin.token_file or --admin-token-file, or give a caller in auth a role")
	}
	if s.dataAPI, err = api.New(api.Options{Engine: s.engine, Observer: s.observer, Figures: s.figures, Identify: s.caller, Challenge: auth.Challenge, Reserved: s.ofOtherDoor, MaySend: s.maySend, Version: opts.Version}); err != nil {
		return nil, err
	}
	if s.adminAPI, err = api.New(api.Options{Engine: s.engine, Observer: s.observer, Figures: s.figures, Evidence: s.evidence, Identify: s.operator, Challenge: auth.Challenge, Reserved: s.ofOtherDoor, Answers: s.answersHTTP, MaySend: s.maySend, Explain: s.explain, Version: opts.Version}); err != nil {
		return nil, err
	}
	if s.stopPush, err = s.metrics.Push(ctx, cfg.Metrics.OTLP, opts.Version); err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.stopPush(context.Background()) })
	s.executions = s.ownAPI(http.HandlerFunc(s.serveExecutions))
	if s.data, err = listen(cfg.Listen.Address, cfg.Listen.TLS, &cfg.Limits, s.dataHandler(cfg), s.limitOptions(cfg), s.log); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	undo = append(undo, s.data.close)
	page, err := s.adminHandler(opts.Version)
	if err != nil {
		return nil, err
	}
	// A budget of its own: callers can't keep operators out by using up theirs.
	bodies, err := newBudget(&cfg.Limits)
	if err != nil {
		return nil, err
	}
	page = bodies.Handler(page, &limit.Options{TypeBase: problemsPath, Caller: callerOf, Pace: paceOf(&cfg.Limits), BodyTimeout: time.Duration(cfg.Limits.ReadTimeout)})
	if s.admin, err = listen(cfg.Admin.Address, cfg.Admin.TLS, &cfg.Limits, page, limit.Options{TypeBase: problemsPath}, s.log); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	return s, nil
}

// Handlers are what the listeners for guarded traffic and for operators serve.
func (s *Server) Handlers() (data, admin http.Handler) {
	return s.data.server.Handler, s.admin.server.Handler
}

// DataAddr is the address of the listener for guarded traffic.
func (s *Server) DataAddr() net.Addr { return s.data.addr() }

// AdminAddr is the address of the listener for operators.
func (s *Server) AdminAddr() net.Addr { return s.admin.addr() }

// Engine is the engine behind all doors.
func (s *Server) Engine() *semel.Engine { return s.engine }

// Run serves until ctx is done, then stops: readiness drops, after limits.shutdown_delay
// listeners and idle connections close, and requests in flight get limits.shutdown_grace to finish. The rest is told to stop and is
// settled by policy: released if nothing was certainly sent, otherwise unknown. Messages
// that are being delivered get the same grace; the others stay due. It closes the store.
// The error is nil if every outcome was recorded.
func (s *Server) Run(ctx context.Context) error {
	background, stopBackground := context.WithCancel(context.Background())
	defer stopBackground()
	var work sync.WaitGroup
	deliveries := s.outbox.run()
	work.Go(func() { _ = s.engine.Run(background, 0) })
	work.Go(func() { s.watchDurability(background) })
	work.Go(func() { s.watchKeys(background) })
	work.Go(func() { s.watchWrites(background) })
	work.Go(func() { s.watchClock(background) })
	work.Go(func() { s.observer.Run(background) })
	work.Go(func() { s.figures.Run(background) })
	work.Go(func() { s.gauges.census.Run(background) })
	work.Go(func() { s.makeHandlers() })
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

// makeHandlers makes the handlers of the API beside what a start waits for, so that the
// first caller doesn't wait for it either.
func (s *Server) makeHandlers() {
	s.dataAPI.Data()
	s.adminAPI.Admin()
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
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case err := <-failed:
		return err
	case <-timer.C:
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
	err := s.data.shutdown(ctx)
	if err != nil {
		s.log.Warn("requests are still in flight: their outcome is settled by policy")
	}
	// What is left is told to stop, and its end is recorded. Its answers get some time to
	// leave; callers who don't read them delay nothing.
	gen.interrupt()
	<-delivered
	leave, cancelLeave := context.WithTimeout(context.Background(), leaveTime)
	defer cancelLeave()
	end, cancelEnd := context.WithTimeout(context.Background(), settleTime)
	defer cancelEnd()
	_ = s.data.shutdown(leave)
	s.data.close()
	errs := []error{gen.close(end)}
	s.writeBehind(ctx)
	stopBackground()
	work.Wait()
	if err := s.stopPush(end); err != nil {
		s.log.Warn("the last metrics could not be pushed", slog.Any("error", err))
	}
	if err := s.stopTraces(end); err != nil {
		s.log.Warn("the last spans could not be pushed", slog.Any("error", err))
	}
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
	var figures error
	var work sync.WaitGroup
	work.Go(func() { figures = s.figures.Close(grace) })
	lost := s.observer.Close(grace)
	work.Wait()
	if lost != nil {
		s.log.Warn("not all that was counted could be written within the grace", slog.String("lost", strings.ReplaceAll(lost.Error(), "\n", ", ")))
	}
	if figures != nil {
		s.log.Warn("the figures since the last write are lost", slog.Any("error", figures))
	}
}

// leastTime is what writeBehind gets where requests have used up the grace: only the
// counts of the last seconds remain, which a store that answers takes at once.
const leastTime = time.Second

// settleTime is how long a stop waits, after the grace, until the ends of attempts are
// recorded.
const settleTime = 5 * time.Second

// leaveTime is the part of settleTime in which answers can leave.
const leaveTime = 3 * time.Second

// Reload reads the configuration again and applies it, all or nothing. It reports whether
// anything changed. A change of something fixed, such as the listeners and the store, is
// an error that names it.
func (s *Server) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if s.load == nil {
		return false, errNoReload
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
	s.mu.Lock()
	s.gen = next
	s.mu.Unlock()
	commit()
	go old.retire()
	s.log.Info("reloaded", slog.Any("changed", diff))
	return true, nil
}

// current is the configuration in force; it may be replaced meanwhile.
func (s *Server) current() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gen
}

// enter is the configuration in force, for one request. Call inFlight.Done when you are
// done.
func (s *Server) enter() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.gen.inFlight.Add(1)
	return s.gen
}

func (s *Server) tell(err error) {
	if err != nil {
		s.log.Warn("the service manager could not be notified", slog.Any("error", err))
	}
}
