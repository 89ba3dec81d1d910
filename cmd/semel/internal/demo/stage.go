package demo

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// stage is what is set up for a demo: a directory, the payment service, and Semel in
// front of it.
type stage struct {
	opts     Options
	rng      *rand.Rand
	client   *client
	screen   *Screen
	dir      string // the guard's configuration and store
	provider *child
	guard    *child
}

func newStage(opts Options) stage {
	return stage{opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 1)), client: newClient(), screen: opts.Screen}
}

// close ends what was started, and removes its files.
func (s *stage) close() error {
	// A server that stops waits for connections on which nothing was ever sent.
	s.client.http.CloseIdleConnections()
	for _, c := range []*child{s.guard, s.provider} {
		if c != nil {
			c.stop()
		}
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// startProvider makes the directory and starts the payment service.
func (s *stage) startProvider(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "semel-demo-"); err != nil {
		return err
	}
	s.provider, err = startChild(ctx, s.dir, ProviderCommand, "--seed", strconv.FormatUint(s.opts.Seed, 10))
	return err
}

// newOrder makes an order with a random amount.
func (s *stage) newOrder(name string) order {
	return order{Order: name, Amount: 100 + s.rng.IntN(100_000), Currency: "EUR"}
}

// startGuard starts 'semel serve' in the demo's directory, for the first time or
// again. The second time it gets the same addresses, which are on the screen, unless
// another process uses them now.
func (s *stage) startGuard(ctx context.Context) error {
	serve := []string{"--config", configName, "--json", "--until-eof"}
	if s.guard != nil {
		same := append(serve, "--listen", hostOf(s.guard.URL), "--admin", hostOf(s.guard.AdminURL))
		if guard, err := startChild(ctx, s.dir, "serve", same...); err == nil {
			s.guard = guard
			return nil
		}
	}
	guard, err := startChild(ctx, s.dir, "serve", serve...)
	if err == nil {
		s.guard = guard
	}
	return err
}

func hostOf(address string) string { return strings.TrimPrefix(address, "http://") }
