// Package service runs Semel as a service inside your own program: the doors, the reverse
// proxy, the execution API, the dashboard and the sweeps that 'semel serve' has, by the same
// configuration file.
//
//	s, err := service.New(ctx, service.Options{File: "semel.yaml"})
//	if err != nil {
//		return err
//	}
//	return s.Run(ctx)
//
// If your program only needs handlers that run once, use package semel with a store and
// package semelhttp instead: they are smaller, and have no listeners of their own.
package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/semelhq/semel"
	inside "github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// Options configure a [Service]. Give it File or YAML; without either it has the defaults of
// 'semel serve' without a file.
type Options struct {
	// File is the configuration file. [Service.Reload] reads it again.
	File string
	// YAML is the configuration itself, in place of File. Relative file names in it start at
	// the working directory.
	YAML []byte
	// Env looks up the variables that the configuration refers to, and the ones that override
	// its settings. Defaults to [os.LookupEnv].
	Env func(name string) (value string, set bool)
	// Log gets what 'semel serve' writes to standard error. Defaults to [slog.Default].
	Log *slog.Logger
	// Version is your program's version, as /readyz?verbose and the metrics show it.
	// Defaults to "unknown".
	Version string
}

// Service is one running service. Its methods may be called concurrently.
type Service struct{ server *inside.Server }

// New reads the configuration, opens the store and the listeners, and serves nothing before
// [Service.Run]. After an error everything is closed again. The error of a configuration
// names each fault with its line.
//
// It migrates PostgreSQL if the configuration says so (store.migrate).
func New(ctx context.Context, opts Options) (*Service, error) {
	if opts.File != "" && opts.YAML != nil {
		return nil, errors.New("service: give File or YAML, not both")
	}
	src := config.Source{Path: opts.File, Data: opts.YAML, Env: opts.Env}
	if src.Env == nil {
		src.Env = os.LookupEnv
	}
	if src.Data != nil {
		src.Path = "YAML" // its name in errors
	}
	read := func() (*config.Config, error) {
		cfg, _, err := config.Load(src)
		return cfg, err
	}
	cfg, err := read()
	if err != nil {
		return nil, err
	}
	in := inside.Options{Config: cfg, Log: opts.Log, Version: opts.Version}
	if opts.File != "" {
		in.Load = read
	}
	server, err := inside.New(ctx, in)
	if err != nil {
		return nil, err
	}
	return &Service{server}, nil
}

// Run serves until ctx is done, then stops: readiness drops, the listeners close, and
// requests in flight get limits.shutdown_grace to finish. What still runs then is settled by
// policy. It closes the store. The error is nil if every outcome was recorded. Call it once.
func (s *Service) Run(ctx context.Context) error { return s.server.Run(ctx) }

// Reload reads File again and applies it, all or nothing, and reports whether anything
// changed. A setting that needs a restart, such as the store, is an error that names it.
func (s *Service) Reload() (changed bool, err error) { return s.server.Reload() }

// DataAddr is the address of the listener for guarded traffic and the execution API.
func (s *Service) DataAddr() net.Addr { return s.server.DataAddr() }

// AdminAddr is the address of the listener for operators: dashboard, API, metrics, health.
func (s *Service) AdminAddr() net.Addr { return s.server.AdminAddr() }

// Engine is the engine behind all doors. Register operations of your own with it, and run
// calls in this process: they share the store, the quotas and the dashboard. [Service.Run]
// closes it.
func (s *Service) Engine() *semel.Engine { return s.server.Engine() }

// Handlers are what the two listeners serve, to be mounted in a server of your own as well.
// The listeners also bound connections and refuse requests that proxies read differently;
// your server has to do that itself.
func (s *Service) Handlers() (data, admin http.Handler) { return s.server.Handlers() }

// Healthy reports whether the process can do its work. While it is false a restart might
// help; use it for a watchdog. Whether traffic should come is GET /readyz on the admin
// listener.
func (s *Service) Healthy() bool { return s.server.Healthy() }
