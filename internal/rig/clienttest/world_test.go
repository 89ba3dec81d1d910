package clienttest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

const settings = `
store: {url: "pebble:%[1]s/data"}
listen: {address: "127.0.0.1:0"}
admin: {address: "127.0.0.1:0", token_file: %[1]s/root}
auth:
  default_tenant: acme
  tokens:
    - {name: shop, token_file: %[1]s/shop}
    - {name: shop-2, principal: shop, token_file: %[1]s/shop-2}
    - {name: other, token_file: %[1]s/other}
operations:
  - {name: default, effects: [charge]}
  - {name: plain, effects: [charge, mail]}
  - {name: retry, effects: [charge], on_failure: retry}
  - {name: short, effects: [charge], lease: 900ms}
  - {name: holds, lease: 900ms}
  - {name: money, financial: true, archive: false}
  - {name: late, refuse_late: true}
  - {name: sequence, sequenced: true}
  - {name: gapless, sequenced: true, gapless: true}
  - {name: tiny, max_result: 32B}
`

// tokens are the callers' and the operator's, by their files.
var tokens = []string{"shop", "shop-2", "other", "root"}

// secret follows the name of a caller in their token.
const secret = "-of-the-scenarios"

// world is the service, which can be restarted, and the drivers.
type world struct {
	dir      string
	drivers  []*driver
	operator *client.Client

	mu   sync.Mutex
	url  string
	stop func()
}

// driver is a client in its language, on its own way to the service.
type driver struct {
	name    string
	proxy   *proxy
	perform func(t *testing.T, step map[string]any) map[string]any
	record  string // of its last step
}

func newWorld(t *testing.T) *world {
	w := &world{dir: t.TempDir()}
	for _, name := range tokens {
		must(t, os.WriteFile(filepath.Join(w.dir, name), []byte(name+secret), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(w.dir, "semel.yaml"), fmt.Appendf(nil, settings, w.dir), 0o600))
	w.start(t)
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts the service on free ports.
func (w *world) start(t *testing.T) {
	cfg, _, err := config.Load(config.Source{Path: filepath.Join(w.dir, "semel.yaml"), Env: func(string) (string, bool) { return "", false }})
	must(t, err)
	server, err := service.New(t.Context(), service.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	w.operator, err = client.New("http://"+server.AdminAddr().String(), &client.Options{TokenFile: filepath.Join(w.dir, "root")})
	must(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.url = "http://" + server.DataAddr().String()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (w *world) target() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.url
}

// driver makes the way of a driver to the service.
func (w *world) driver(t *testing.T, name string) (d *driver, url string) {
	d = &driver{name: name, proxy: &proxy{target: w.target}}
	return d, d.proxy.serve(t)
}

func (w *world) goDriver(t *testing.T) *driver {
	d, url := w.driver(t, "go")
	by := &goDriver{url: url, prefix: "go/", keys: map[string]string{}}
	d.perform = func(t *testing.T, what map[string]any) (saw map[string]any) {
		var s step
		into(t, what, &s)
		into(t, by.perform(t.Context(), s), &saw)
		return saw
	}
	return d
}

// clients is where the clients are that aren't Go's.
const clients = "../../../clients"

// need fails the test where CI runs it without a program, and skips it otherwise.
func need(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// tools looks for the programs that run the clients.
func tools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"node", "npm", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			need(t, "there is no "+tool)
		}
	}
}

// built builds the client for TypeScript, once for all tests, and returns where it is.
func built(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(compiler); errors.Is(err, fs.ErrNotExist) {
		need(t, "the compiler of TypeScript is not there: scripts/install-sdks installs it")
	}
	dir, err := build()
	must(t, err)
	return dir
}

const compiler = clients + "/typescript/node_modules/typescript/bin/tsc"

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "semel-client-")
	if err != nil {
		return "", err
	}
	made = dir
	if out, err := exec.Command("node", compiler, "-p", clients+"/typescript", "--outDir", dir).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600)
})

// made is the folder that build made, or empty.
var made string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(made)
	os.Exit(code)
}

// program starts a driver that is a program.
func (w *world) program(t *testing.T, name string, command ...string) *driver {
	d, url := w.driver(t, name)
	cmd := exec.Command(command[0], append([]string{filepath.Join("testdata", command[1]), url, name + "/", t.TempDir()}, command[2:]...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "PYTHONPATH="+clients+"/python", "PYTHONDONTWRITEBYTECODE=1"), os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	answers := bufio.NewScanner(out)
	d.perform = func(t *testing.T, what map[string]any) (saw map[string]any) {
		err := json.NewEncoder(in).Encode(what)
		if err == nil && !answers.Scan() {
			err = cmp.Or(answers.Err(), io.EOF)
		}
		if err == nil {
			err = json.Unmarshal(answers.Bytes(), &saw)
		}
		if err != nil {
			t.Errorf("%s gave up: %v", name, err)
			return map[string]any{}
		}
		return saw
	}
	return d
}
