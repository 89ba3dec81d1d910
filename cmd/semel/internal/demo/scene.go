package demo

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/rig/stage"
)

// scene is the setting of a demo: a directory, the payment service, and Semel in front of it.
type scene struct {
	opts     Options
	rng      *rand.Rand
	client   *client
	screen   *Screen
	dir      string // the guard's configuration and store
	provider *stage.Process
	guard    *stage.Process
}

func newScene(opts Options) scene {
	return scene{opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 1)), client: newClient(), screen: opts.Screen}
}

// close ends the processes and removes their files.
func (s *scene) close() error {
	// A server that stops waits for connections on which nothing was ever sent.
	s.client.http.CloseIdleConnections()
	for _, p := range []*stage.Process{s.guard, s.provider} {
		if p != nil {
			_ = p.Stop() // its end proves nothing
		}
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// startProvider makes the directory and starts the payment service.
func (s *scene) startProvider(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "semel-demo-"); err != nil {
		return err
	}
	s.provider, err = startChild(ctx, s.dir, ProviderCommand, "--seed", strconv.FormatUint(s.opts.Seed, 10))
	return err
}

// newOrder makes an order with a random amount.
func (s *scene) newOrder(name string) order {
	return order{Order: name, Amount: 100 + s.rng.IntN(100_000), Currency: "EUR"}
}

// startGuard starts 'semel serve' in the demo's directory, for the first time or
// again. The second time it gets the same addresses, which are on the screen, unless
// another process uses them now.
func (s *scene) startGuard(ctx context.Context) error {
	serve := []string{"serve", "--config", configName, "--json", "--until-eof"}
	if s.guard != nil {
		same := append(serve, "--listen", hostOf(s.guard.URL), "--admin", hostOf(s.guard.AdminURL))
		if guard, err := startChild(ctx, s.dir, same...); err == nil {
			s.guard = guard
			return nil
		}
	}
	guard, err := startChild(ctx, s.dir, serve...)
	if err == nil {
		s.guard = guard
	}
	return err
}

func hostOf(address string) string { return strings.TrimPrefix(address, "http://") }

// startChild runs this program again as a server, in dir, and waits until it has printed its
// address.
func startChild(ctx context.Context, dir string, args ...string) (*stage.Process, error) {
	cmd, err := stage.Self(args...)
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Env = dir, environment()
	return stage.Start(ctx, cmd)
}

// environment is the environment of this process without the service's settings, so
// that the demo can't touch another service's store.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(v), "SEMEL_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") && !strings.HasPrefix(v, "WATCHDOG_") {
			env = append(env, v)
		}
	}
	return env
}
