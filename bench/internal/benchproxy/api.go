package benchproxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/benchstore"
	"github.com/semelhq/semel/bench/internal/loopback"
	semelclient "github.com/semelhq/semel/client"
	"github.com/semelhq/semel/server/api"
)

// measureAPI measures callers who begin and complete new keys through the Go client.
func (r *rig) measureAPI(ctx context.Context, opts Options) (_ *benchstore.Measure, err error) {
	const operation = "bench.api"
	if err := r.engine.Register(semel.Operation{Name: operation}); err != nil {
		return nil, err
	}
	service, err := api.New(api.Options{Engine: r.engine, Identify: func(*http.Request) (api.Caller, error) { return api.Caller{}, nil }})
	if err != nil {
		return nil, err
	}
	defer service.Close()
	server, err := loopback.Serve(service.Data(), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	c, err := semelclient.New("http://"+server.Addr(), &semelclient.Options{
		Transport: &http.Transport{MaxIdleConns: opts.Connections, MaxIdleConnsPerHost: opts.Connections},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	result := semel.Result{Data: make([]byte, opts.AnswerBytes)}
	done := make([]int, opts.Connections) // pairs, by caller
	got, err := benchstore.Alternate(ctx, opts.turns(opts.Duration/2, 1), "", func(ctx context.Context, i int) error {
		done[i]++
		begun, err := c.Begin(ctx, semel.Call{Operation: operation, Key: strconv.Itoa(i) + "-" + strconv.Itoa(done[i])})
		if err == nil {
			_, err = c.Complete(ctx, begun.Execution, result)
		}
		return err
	}, nil)
	return got.Ours, err
}
