package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/semelhq/semel/server"
	"github.com/semelhq/semel/server/config"
)

// nodeCommand is how the program runs itself as a node.
const nodeCommand = "node"

// address is the first line that a node prints.
type address struct {
	Listen string `json:"listen"`
}

// runNode serves with a configuration until standard input ends.
func runNode(ctx context.Context, file string, stdin io.Reader, stdout io.Writer) error {
	cfg, _, err := config.Load(config.Source{Path: file, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		return err
	}
	s, err := server.New(ctx, server.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel() // the parent is done, or gone
	}()
	if err := json.NewEncoder(stdout).Encode(address{s.DataAddr().String()}); err != nil {
		cancel()
	}
	return s.Run(ctx)
}

// node is one process of the service, which may be killed and started again.
type node struct {
	file string

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// newNode writes the configuration and starts the process.
func newNode(dir string, i int, o *options, upstream string) (*node, error) {
	settings := map[string]any{"url": o.store, "migrate": true, "accept_loss": true}
	// What a killed node leaves is held when its lease is over. Without kills no lease
	// may end, however slow the machine is.
	lease := "1m"
	if o.kills > 0 {
		lease = "1s"
	}
	n := &node{file: filepath.Join(dir, fmt.Sprintf("node%d.yaml", i))}
	if err := configure(n.file, settings, upstream, lease); err != nil {
		return nil, err
	}
	return n, n.start()
}

// configure writes the configuration of a node with the settings of its store and how
// long a lease lasts.
func configure(file string, store map[string]any, upstream, lease string) error {
	// JSON is YAML with all quotes.
	text, err := json.Marshal(map[string]any{
		"listen": map[string]any{"address": "127.0.0.1:0"},
		"admin":  map[string]any{"address": "127.0.0.1:0"},
		"store":  store,
		"operations": []any{map[string]any{
			"name": "orders.create", "lease": lease, "reconcile_url": upstream + "/reconcile", "reconcile_every": "1s",
		}},
		"routes": []any{map[string]any{"match": "POST /orders", "upstream": upstream, "operation": "orders.create"}},
		"purge":  map[string]any{"interval": "1s"},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func (n *node) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, nodeCommand, n.file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var at address
	if err := firstLine(out, &at); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.stdin, n.url = cmd, stdin, "http://"+at.Listen
	return nil
}

// address is where the node serves, or did before it was killed.
func (n *node) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.url
}

// kill ends the process as kill -9 does.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// restart ends the process as a service manager does, by SIGTERM, and starts it
// again when it has finished its requests. Its address is then a new one. It returns an
// error if the process ended without having recorded every outcome.
func (n *node) restart() error {
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the node did not stop in order: %w", err)
	}
	return n.start()
}

// stop ends it in an orderly way.
func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.stdin.Close()
	_ = n.cmd.Wait()
}
