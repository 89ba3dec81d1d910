package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/service/limit"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/internal/service/notify"
	"github.com/semelhq/semel/service/tracing"
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
	// TestClock lets an admin move the clock of a store in memory; others ignore it.
	TestClock bool
}

// Server is one running service. Its methods may be called concurrently.
type Server struct {
	log       *slog.Logger
	load      func() (*config.Config, error)
	version   string
	store     semel.Store
	storeName string
	engine    *semel.Engine
	archive   io.Closer     // nil if there is none to close
	archives  bool          // there is an archive
	evidence  *evidence.Log // nil if there is none
	outbox    *outbox       // nil without destinations
	notify    *notify.Notifier
	observers
	front
	watched

	reloading sync.Mutex
	mu        sync.RWMutex
	gen       *generation
	former    sync.Map // generations before it with requests under way
	undo      []func() // of New, until it succeeds
}

type observers struct {
	observer       *api.Observer
	figures        *figures.Figures
	metrics        *metrics.Metrics
	gauges         gauges
	metricsHandler http.Handler
	stopPush       func(context.Context) error
	stopTraces     func(context.Context) error
}

type front struct {
	data, admin       *listener
	dataAPI, adminAPI *api.API
	executions        http.Handler // the execution API of the data listener
}

type watched struct {
	stopping     atomic.Bool
	reading      atomic.Pointer[durabilityReading]
	tight        atomic.Bool // the disk of the store has little room
	lastSweep    atomic.Pointer[semel.SweepEnded]
	reloadFailed atomic.Bool  // the last one
	sweptAt      atomic.Int64 // when a sweep ended without trouble, in Unix milliseconds
	awaySince    atomic.Int64 // when the store was first seen not to answer, in Unix seconds; 0 while it answers
}

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
	defer func() {
		if err != nil {
			for _, undo := range slices.Backward(s.undo) {
				undo()
			}
		}
		s.undo = nil
	}()
	if s.notify, err = notify.FromEnv(); err != nil {
		return nil, err
	}
	if s.store, err = openStoreWith(ctx, cfg.Store, &pebblestore.Options{Logger: s.log}); err != nil {
		return nil, err
	}
	s.onError(func() { s.store.Close() })
	s.watchRoom()
	if p := s.readDurability(ctx); len(p.Unsafe) > 0 {
		s.log.Warn("the store is not safe for every use", slog.String("durability", string(p.Level)), slog.Any("unsafe", p.Unsafe))
	}
	tracer, err := s.measure(ctx, &opts)
	if err != nil {
		return nil, err
	}
	if err := s.openEngine(ctx, cfg, tracer); err != nil {
		return nil, err
	}
	if s.gen, _, err = s.build(cfg); err != nil {
		return nil, err
	}
	if s.outbox, err = newOutbox(s.engine, &cfg.Dispatch, s.destinations(s.gen), tracer.Dispatched(s.metrics.Dispatched(observeMessages(s.log)))); err != nil {
		return nil, err
	}
	if cfg.Auth.Configured() && cfg.OpenAdmin() {
		s.log.Warn("no operator is named, so every program on this machine is one at the admin listener: set admin.token_file or --admin-token-file, or give a caller in auth a role")
	}
	if err := s.openAPIs(); err != nil {
		return nil, err
	}
	if err := s.openListeners(cfg, &opts); err != nil {
		return nil, err
	}
	return s, nil
}

// onError has undo called if New fails later.
func (s *Server) onError(undo func()) { s.undo = append(s.undo, undo) }

// measure counts and traces, if anybody wants that; a nil tracer observes nothing.
func (s *Server) measure(ctx context.Context, opts *Options) (tracer *tracing.Tracer, err error) {
	s.metrics = metrics.New(s.gauge)
	s.observer, s.figures = api.NewObserver(s.store), figures.New(s.store, &figures.Options{Crowd: opts.Config.Metrics.Crowded, Crowded: s.metrics.Crowded})
	s.metricsHandler = s.metrics.Handler()
	s.gauges.census = metrics.NewCensus(s.store)
	provider := opts.Traces
	s.stopTraces = func(context.Context) error { return nil }
	if provider == nil {
		pushed, err := metrics.Traces(ctx, opts.Config.Traces.OTLP, opts.Config.Traces.Ratio, opts.Version)
		if err != nil {
			return nil, err
		}
		if pushed != nil {
			provider, s.stopTraces = pushed, pushed.Shutdown
		}
	}
	if provider != nil {
		tracer = tracing.New(provider)
	}
	s.onError(func() { s.stopTraces(context.Background()) })
	if s.stopPush, err = s.metrics.Push(ctx, opts.Config.Metrics.OTLP, opts.Version); err != nil {
		return nil, err
	}
	s.onError(func() { s.stopPush(context.Background()) })
	return tracer, nil
}

func (s *Server) openEngine(ctx context.Context, cfg *config.Config, tracer *tracing.Tracer) (err error) {
	opts := &semel.Options{
		Events:        allOf(tracer.Events(), observe(s.log), door.Log(s.log, slog.LevelInfo), s.observer.Events(), s.figures.Events(), s.metrics.Events(), &semel.Events{Swept: s.noteSweep}),
		PurgeInterval: time.Duration(cfg.Purge.Interval), PurgeRate: purgeRate,
		Quotas: quotasOf(&cfg.Quotas),
	}
	if s.archives = cfg.Archives(); s.archives {
		if opts.Archive, s.archive, err = OpenArchive(cfg.Archive, s.store); err != nil {
			return err
		}
		if s.archive != nil {
			s.onError(func() { s.archive.Close() })
		}
	}
	if s.evidence, err = OpenEvidence(&cfg.Evidence, s.store, s.log); err != nil {
		return err
	}
	if s.evidence != nil {
		opts.Witness, opts.Events = s.evidence, allOf(opts.Events, &semel.Events{Erased: s.evidence.Erased})
	}
	if s.engine, err = semel.New(s.metrics.Store(s.store), opts); err != nil {
		return err
	}
	s.onError(func() { s.engine.Close(context.Background()) })
	s.figures.Announce(s.engine.Internal().Node(), s.version)
	_, err = s.engine.Internal().LoadEpoch(ctx)
	return err
}

func (s *Server) openAPIs() (err error) {
	opts := api.Options{Engine: s.engine, Observer: s.observer, Figures: s.figures, Identify: s.caller, Reserved: s.ofOtherDoor, Declared: s.declared, MaySend: s.maySend}
	if s.dataAPI, err = api.New(opts); err != nil {
		return err
	}
	opts.Identify, opts.Evidence, opts.Answers, opts.Explain = s.operator, s.evidence, s.answersHTTP, s.explain
	opts.Attributes = func() []string { return s.current().cfg.AttributeNames() }
	s.adminAPI, err = api.New(opts)
	return err
}

// openListeners opens both listeners. Each has its own budget for bodies: callers can't keep
// operators out by using up theirs.
func (s *Server) openListeners(cfg *config.Config, opts *Options) (err error) {
	s.executions = marked(peer.Data, s.ownAPI(http.HandlerFunc(s.serveExecutions)))
	if s.data, err = listen(cfg.Listen.Address, cfg.Listen.TLS, len(cfg.MCP) > 0, &cfg.Limits, s.dataHandler(cfg, newBudget(&cfg.Limits)), s.limitOptions(cfg), s.log); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.onError(s.data.close)
	page, err := s.adminHandler(opts)
	if err != nil {
		return err
	}
	page = newBudget(&cfg.Limits).Handler(page, limit.Options{TypeBase: problemsPath, Caller: callerOf, Pace: paceOf(&cfg.Limits), BodyTimeout: time.Duration(cfg.Limits.ReadTimeout)})
	if s.admin, err = listen(cfg.Admin.Address, cfg.Admin.TLS, false, &cfg.Limits, page, limit.Options{TypeBase: problemsPath}, s.log); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
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
