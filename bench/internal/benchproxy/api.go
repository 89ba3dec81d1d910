package benchproxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/loopback"
	semelclient "github.com/semelhq/semel/client"
	"github.com/semelhq/semel/server/api"
)

// measureAPI measures callers who begin and complete new keys through the Go client.
func (r *rig) measureAPI(ctx context.Context, opts Options) (side APISide, err error) {
	const operation = "bench.api"
	if err := r.engine.Register(semel.Operation{Name: operation}); err != nil {
		return side, err
	}
	service, err := api.New(api.Options{Engine: r.engine, Identify: func(*http.Request) (api.Caller, error) { return api.Caller{}, nil }})
	if err != nil {
		return side, err
	}
	defer service.Close()
	server, err := loopback.Serve(service.Data(), true)
	if err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	c, err := semelclient.New("http://"+server.Addr(), &semelclient.Options{
		Transport: &http.Transport{MaxIdleConns: opts.Connections, MaxIdleConnsPerHost: opts.Connections},
	})
	if err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	result := semel.Result{Data: make([]byte, opts.AnswerBytes)}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pairs atomic.Int64
	var callers sync.WaitGroup
	failed := make(chan error, opts.Connections)
	for i := range opts.Connections {
		callers.Go(func() {
			// A pair that has begun is finished: on a busy machine even the first may take
			// longer than the time.
			for n := 0; ctx.Err() == nil && (n == 0 || time.Since(began) < opts.Duration/2); n++ {
				key := strconv.Itoa(i) + "-" + strconv.Itoa(n)
				begun, err := c.Begin(ctx, semel.Call{Operation: operation, Key: key})
				if err == nil {
					_, err = c.Complete(ctx, begun.Execution, result)
				}
				if err != nil {
					if ctx.Err() == nil {
						failed <- err
						cancel()
					}
					return
				}
				pairs.Add(1)
			}
		})
	}
	callers.Wait()
	side = APISide{Pairs: int(pairs.Load()), Seconds: time.Since(began).Seconds()}
	side.PairsPerSecond = float64(side.Pairs) / side.Seconds
	select {
	case err = <-failed:
	default:
	}
	return side, err
}
