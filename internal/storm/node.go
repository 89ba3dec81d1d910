package storm

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/stage"
)

// Node makes what a node serves. The engine's records are swept. Whatever else it starts may
// run until the process is killed.
type Node func(ctx context.Context, engine *semel.Engine, sink string) (http.Handler, error)

// Main runs the tests of a package, or is a node if [Start] has started this process. Call it
// from TestMain and exit with its result.
func Main(m *testing.M, node Node) int {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return serve(ctx, l, node, args[0], args[1])
	})
	if isNode {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Main(m)
}

// serve is the process of a node.
func serve(ctx context.Context, l net.Listener, node Node, store, sink string) error {
	st, err := Open(ctx, store)
	if err != nil {
		return err
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		return err
	}
	handler, err := node(ctx, engine, sink)
	if err != nil {
		return err
	}
	go func() { _ = engine.Run(ctx, time.Second) }()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	return http.Serve(l, handler)
}
