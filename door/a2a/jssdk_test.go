package a2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// jsSDK sends one message five times at once by the SDK for JavaScript, to the agent whose
// card is at a URL.
func jsSDK(t *testing.T, url, how, id string) (got []struct {
	Task  string
	State json.RawMessage
	Error string
}) {
	t.Helper()
	dir := filepath.Join("testdata", "jssdk")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@a2a-js", "sdk")); errors.Is(err, os.ErrNotExist) {
		const missing = "the SDK is not there: scripts/install-sdks installs it"
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "client.mjs", url, how, id, "5")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got) != 5 {
		t.Fatalf("%v: %s", err, out)
	}
	return got
}

// TestJavaScriptSDK: with the SDK for JavaScript as the client, one message that comes five
// times at once runs five times at a stock agent, and once behind either form of the door.
func TestJavaScriptSDK(t *testing.T) {
	thorough.Only(t, "the SDK for JavaScript as the client of an agent")
	bindings := []struct{ name, path, binding, version string }{
		{"JSON-RPC 1.0", "/rpc", "JSONRPC", "1.0"},
		{"JSON-RPC 0.3", "/old", "JSONRPC", "0.3"},
		{"REST 1.0", "/rest", "HTTP+JSON", "1.0"},
	}
	serve := func(t *testing.T, handler http.Handler, path, binding, version string) string {
		var url string
		mux := http.NewServeMux()
		mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"name":"agent","description":"","version":"1","capabilities":{"streaming":true},"defaultInputModes":[],"defaultOutputModes":[],"skills":[],"supportedInterfaces":[{"url":%q,"protocolBinding":%q,"protocolVersion":%q}]}`, url+path, binding, version)
		})
		mux.Handle("/", handler)
		url = listen(t, mux)
		return url
	}
	for _, b := range bindings {
		for _, how := range []string{"send", "stream"} {
			t.Run(b.name+", "+how, func(t *testing.T) {
				stock := newAgent()
				jsSDK(t, serve(t, stock.serve(a2asrv.NewHandler(stock)), b.path, b.binding, b.version), how, "m-1")
				if n := stock.runs.Load(); n != 5 {
					t.Errorf("the stock agent ran %d times", n)
				}
				guarded := newAgent()
				w := wrapped(t, once.Options{Operation: operation})
				handler, err := once.Wrap(w.Engine, a2asrv.NewHandler(guarded, a2asrv.WithCallInterceptors(signedIn{})), once.Options{Operation: operation})
				if err != nil {
					t.Fatal(err)
				}
				behind := newAgent()
				front := gateway(t, behind.serve(a2asrv.NewHandler(behind)), once.GatewayOptions{Operation: operation})
				for form, c := range map[string]struct {
					*agent
					http.Handler
				}{"wrapped": {guarded, guarded.serve(handler)}, "gateway": {behind, front.handler}} {
					got := jsSDK(t, serve(t, c.Handler, b.path, b.binding, b.version), how, "m-1")
					for _, g := range got {
						if g.Error != "" || g.Task != got[0].Task || g.Task == "" || string(g.State) != "3" { // completed
							t.Errorf("%s: %+v", form, got)
						}
					}
					if n := c.runs.Load(); n != 1 {
						t.Errorf("%s: it ran %d times", form, n)
					}
				}
				t.Logf("one message five times at once: the stock agent ran %d times, the wrapped one %d, and the one behind the gateway %d", stock.runs.Load(), guarded.runs.Load(), behind.runs.Load())
			})
		}
	}
}
