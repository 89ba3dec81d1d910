package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/heapfloor"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

const addressesLong = `addresses: {"listen":"HOST:PORT","url":"http://HOST:PORT","admin":"HOST:PORT","admin_url":…}.
Port 0 picks a free port.`

const serveLong = `Run the service: the reverse proxy with the configured routes, the execution API, and
the loop that settles abandoned calls and purges expired ones.

Without a file it serves the execution API on 127.0.0.1:8480, and operators on
127.0.0.1:8481, with the embedded store in ./semel-data. Environment variables override
the file, and flags override both; 'semel config explain' shows where each setting comes
from.

SIGHUP, or POST /v1/reload to the admin listener, reads the configuration again.
SIGINT and SIGTERM stop the service when the requests in flight are done; a second
signal stops it at once.

For tests in any language there is --store memory: --test-clock: then
POST /test/clock?by=25h to the admin listener moves the clock of the store forward.

Once the service accepts requests, the first line of the output with --json names its
` + addressesLong + ` The log goes to standard error.`

func newServe() *cobra.Command {
	var untilEOF, testClock bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service: reverse proxy, execution API, sweeps",
		Long:  serveLong,
		Example: `  semel serve
  semel serve --config semel.yaml
  semel serve --listen 127.0.0.1:8480 --admin 127.0.0.1:8481 --store pebble:./data`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := loadSource(cmd, configured(cmd))
			if err != nil {
				return err
			}
			if testClock && cfg.Store.Name() != "memory:" {
				return usage("--test-clock needs --store memory: because it moves the clock of a store in memory only, and the store is %s", cfg.Store.Name())
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			if untilEOF {
				go func() {
					_, _ = io.Copy(io.Discard, cmd.InOrStdin())
					cancel() // the parent is done, or gone
				}()
			}
			reload := func() (*config.Config, error) { // without repeating the warnings about the environment
				cfg, _, err := config.Load(configured(cmd))
				return cfg, err
			}
			err = serve(ctx, cmd.ErrOrStderr(), service.Options{Config: cfg, Load: reload, TestClock: testClock}, func(s *service.Server) error {
				if !asJSON(cmd) {
					return nil
				}
				return printAddresses(cmd.OutOrStdout(), s, cfg, "")
			})
			return blame(err, origins)
		},
	}
	cmd.Flags().String("listen", "", "`address` for the guarded traffic and the execution API")
	cmd.Flags().String("admin", "", "`address` for operators")
	cmd.Flags().String("admin-token-file", "", "`file` with the token of operators")
	cmd.Flags().BoolVar(&testClock, "test-clock", false, "for tests, let operators move the clock of --store memory:")
	cmd.Flags().BoolVar(&untilEOF, "until-eof", false, "stop when standard input ends, for a parent that may die")
	cmd.Flags().Lookup("until-eof").Hidden = true
	return jsonFlag(configFlags(cmd))
}

// printAddresses writes the addresses of a server as one line of JSON. path is that of its only
// door; empty: it isn't at one.
func printAddresses(w io.Writer, s *service.Server, cfg *config.Config, path string) error {
	var line struct {
		Listen   string `json:"listen"`
		URL      string `json:"url"`
		Admin    string `json:"admin"`
		AdminURL string `json:"admin_url"`
	}
	line.Listen, line.URL = addressOf(s.DataAddr(), cfg.Listen.TLS, path)
	line.Admin, line.AdminURL = addressOf(s.AdminAddr(), cfg.Admin.TLS, "")
	return json.NewEncoder(w).Encode(line)
}

// addressOf is the address of a listener, and the URL of a path there.
func addressOf(addr net.Addr, certs config.TLS, path string) (hostport, url string) {
	scheme := "http"
	if certs.Cert != "" {
		scheme = "https"
	}
	return addr.String(), scheme + "://" + addr.String() + path
}

// configFlags adds the flags that name the configuration of a command.
func configFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("config", "", "the service's configuration `file`")
	cmd.Flags().String("store", "", "`URL` of the store: pebble:DIR, memory:, postgres:, redis:")
	return cmd
}

// configured is the configuration that a command's flags name, and change.
func configured(cmd *cobra.Command) config.Source {
	src := config.Source{Env: os.LookupEnv, Flags: map[string]string{}}
	src.Path, _ = cmd.Flags().GetString("config")
	for _, name := range []string{"listen", "admin", "admin-token-file", "store"} { // all but the last are of serve
		if cmd.Flags().Changed(name) {
			src.Flags[name], _ = cmd.Flags().GetString(name)
		}
	}
	return src
}

// serve runs a server until ctx is done, and logs to w. started is called once it listens.
func serve(ctx context.Context, w io.Writer, opts service.Options, started func(*service.Server) error) (err error) {
	if opts.Log, err = newLogger(w, opts.Config.Log); err != nil {
		return err
	}
	build := thisBuild()
	opts.Version = build.Version
	quietLibraries(opts.Log)
	s, err := service.New(ctx, opts)
	if err != nil {
		return inUse(err, opts.Config.Store.URL, false)
	}
	opts.Log.Info("build", slog.String("version", build.Version), slog.String("commit", build.Commit), slog.String("committed", build.Time), slog.Bool("modified", build.Modified), slog.String("go", build.Go))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hangups := make(chan os.Signal, 1)
	defer close(hangups)         // when no more come
	signal.Reset(syscall.SIGHUP) // for other commands it ends the program
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	go func() {
		for range hangups {
			if _, err := s.Reload(); err != nil {
				opts.Log.Error("the configuration stays as it was", slog.Any("error", err))
			}
		}
	}()
	defer noteAddress(opts.Config, s)()
	defer heapfloor.Keep(heapfloor.Size)()
	if err = started(s); err != nil {
		cancel()
	}
	return errors.Join(err, s.Run(ctx))
}

// quietLibraries sends what libraries log to our logger, without quoted text: net/http quotes
// unsolicited data from an upstream.
func quietLibraries(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraryLog{to})
}

type libraryLog struct{ to *slog.Logger }

func (l libraryLog) Write(p []byte) (int, error) {
	text, _, _ := strings.Cut(string(p), "\"")
	text, _, _ = strings.Cut(text, "\n")
	l.to.Warn("from a library", slog.String("text", strings.TrimSpace(text)))
	return len(p), nil
}

// newLogger writes to w in the configured format: by default text on a terminal, else JSON.
func newLogger(w io.Writer, c config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if c.Format == "text" || c.Format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return slog.New(slog.NewJSONHandler(harmless{w}, opts)), nil
}

// readable writes durations as 46.822ms instead of a number of nanoseconds, and leaves out empty
// values.
func readable(groups []string, a slog.Attr) slog.Attr {
	switch {
	case a.Value.Kind() == slog.KindDuration:
		d, unit := a.Value.Duration(), time.Microsecond
		if d >= time.Second {
			unit = time.Millisecond
		}
		return slog.String(a.Key, d.Round(unit).String())
	case len(groups) == 0 && a.Key == slog.MessageKey:
	case a.Value.Kind() == slog.KindString && a.Value.String() == "":
		return slog.Attr{}
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
