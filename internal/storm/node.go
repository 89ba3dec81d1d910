package storm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// What the process of a node is told by its environment.
const (
	storeEnv = "SEMEL_STORM_STORE"
	sinkEnv  = "SEMEL_STORM_SINK"
)

// Node makes what a node serves. The engine's records are swept. Whatever else it starts may
// run until the process is killed.
type Node func(ctx context.Context, engine *semel.Engine, sink string) (http.Handler, error)

// Main runs the tests of a package, or is a node if [Start] has started this process. Call it
// from TestMain and exit with its result.
func Main(m *testing.M, node Node) int {
	if os.Getenv(storeEnv) == "" {
		return pgtest.Main(m)
	}
	fmt.Fprintln(os.Stderr, serve(context.Background(), node))
	return 1
}

// serve is the process of a node. It ends when its standard input does, which is when the
// test is gone.
func serve(ctx context.Context, node Node) error {
	st, err := Open(ctx, os.Getenv(storeEnv))
	if err != nil {
		return err
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		return err
	}
	handler, err := node(ctx, engine, os.Getenv(sinkEnv))
	if err != nil {
		return err
	}
	go func() { _ = engine.Run(ctx, time.Second) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, handler)
}

// process is a node as the test sees it.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func (r *Rig) start(i int) {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), storeEnv+"="+r.store.URL, sinkEnv+"="+r.sink)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	p.url = strings.TrimSpace(line)
	r.nodes[i].Store(p)
	if err != nil {
		r.t.Fatalf("a node did not start: %v", err)
	}
}

// kill ends a node as kill -9 does.
func (r *Rig) kill(i int) {
	p := r.nodes[i].Load()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // perhaps it is dead already
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
}
