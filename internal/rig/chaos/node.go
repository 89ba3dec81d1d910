//go:build linux

package chaos

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
)

// lease is that of all operations: short, so that faults outlast it.
const lease = 3 * time.Second

// node is one process of the service, behind a network that can fail.
type node struct {
	*process
	net    *faultnet.Net // clients reach the node over it
	file   string        // its configuration
	log    string        // its log
	clock  string        // the file that moves its clocks
	config nodeConfig
	binary atomic.Pointer[string] // the program

	listen, admin atomic.Pointer[string]
	wall, slept   time.Duration // how far its clocks were moved; of the fault that hits it

	mu   sync.Mutex
	peak usage
}

// nodeConfig has the settings in which nodes differ.
type nodeConfig struct {
	store    string // URL
	upstream string
	asked    string // the reconcile_url
	lossy    bool   // the store may lose records at a failover, and that is accepted
	number   int    // changes with each reload
}

// configure writes the configuration, as JSON, which is YAML with all quotes.
func (n *node) configure() error {
	c := &n.config
	op := func(name string, more map[string]any) map[string]any {
		all := map[string]any{"name": name, "lease": lease.String()}
		maps.Copy(all, more)
		return all
	}
	route := func(op string) map[string]any {
		all := map[string]any{"match": "POST /" + op, "upstream": c.upstream, "operation": op, "timeout": (5 * time.Second).String()}
		if rules[op].Numbered {
			all["sequence"] = "header:" + numberHeader
		}
		return all
	}
	numbers := func(name string) map[string]any {
		onAbandoned := map[bool]string{false: "hold", true: "retry"}[rules[name].Repeats]
		return op(name, map[string]any{"sequenced": true, "gapless": rules[name].Gapless, "on_abandoned": onAbandoned})
	}
	text, err := json.MarshalIndent(map[string]any{
		"listen": map[string]any{"address": "127.0.0.1:0"},
		"admin":  map[string]any{"address": "127.0.0.1:0"},
		"store":  map[string]any{"url": c.store, "migrate": strings.HasPrefix(c.store, "postgres"), "accept_loss": c.lossy},
		"operations": []any{
			op(opOnce, nil),
			op(opSteps, map[string]any{"effects": []string{"charge"}}),
			op(opAgain, map[string]any{"on_abandoned": "retry"}),
			op(opPay, nil),
			op(opAsked, map[string]any{"reconcile_url": c.asked, "reconcile_every": "1s"}),
			op(opStep, map[string]any{"effects": []string{"semelproxy.upstream"}}),
			numbers(opNumbers), numbers(opGapless), numbers(opPayNumbers), numbers(opPayGapless), op(opOwned, nil),
		},
		"routes": []any{route(opPay), route(opAsked), route(opStep), route(opPayNumbers), route(opPayGapless), route(opOwned)},
		"limits": map[string]any{"shutdown_grace": (6*time.Second + time.Duration(c.number%2)*time.Millisecond).String()},
		"purge":  map[string]any{"interval": "1s"},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(n.file, text, 0o600)
}

// newNode prepares a node that does not run yet.
func newNode(dir, binary string, number int, c nodeConfig, tell func(string)) (*node, error) {
	name := "node" + strconv.Itoa(number)
	n := &node{
		file: filepath.Join(dir, name+".yaml"), log: filepath.Join(dir, name+".log"), clock: filepath.Join(dir, name+".clock"), config: c,
	}
	n.binary.Store(&binary)
	n.process = &process{name: name, tell: tell, program: func(int) (program, error) {
		log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		cmd := exec.Command(*n.binary.Load(), "serve", "--config", n.file, "--json")
		cmd.Dir, cmd.Stderr = dir, log
		cmd.Env = append(os.Environ(), clockEnv+"="+n.clock)
		return program{Cmd: cmd, read: n.read}, err
	}}
	if err := n.configure(); err != nil {
		return nil, err
	}
	if err := n.setClock(0, 0); err != nil {
		return nil, err
	}
	var err error
	n.net, err = faultnet.Listen(func() (net.Conn, error) {
		addr := n.listen.Load()
		if addr == nil {
			return nil, io.ErrClosedPipe
		}
		return net.DialTimeout("tcp", *addr, dialTime)
	})
	return n, err
}

// read reads the node's output; its first line has the addresses.
func (n *node) read(out io.Reader, ready func()) {
	r := bufio.NewReader(out)
	text, err := r.ReadBytes('\n')
	var first struct{ Listen, Admin string }
	if err == nil && json.Unmarshal(text, &first) == nil {
		n.listen.Store(&first.Listen)
		n.admin.Store(&first.Admin)
		ready()
	}
	_, _ = io.Copy(io.Discard, r)
}

// isReady reports whether the node says that it may get traffic.
func (n *node) isReady() error {
	addr := n.admin.Load()
	if addr == nil {
		return fmt.Errorf("%s has not started", n.name)
	}
	client := &http.Client{Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + *addr + "/readyz?verbose")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", n.name, text)
	}
	return err
}

// setClock moves the clocks of the node: how far the wall clock is ahead, and the
// monotonic one.
func (n *node) setClock(wall, monotonic time.Duration) error {
	return writeClock(n.clock, wall, monotonic)
}

// writeClock writes a file of clocks. Processes that have mapped it see it at once.
func writeClock(file string, offsets ...time.Duration) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	var data []byte
	for _, d := range offsets {
		data = binary.NativeEndian.AppendUint64(data, uint64(d))
	}
	_, err = f.WriteAt(data, 0)
	return err
}

// usage is what a process takes.
type usage struct {
	Memory  int64
	Threads int64
	Files   int64
}

// sample records the memory of the node, if it is more than before.
func (n *node) sample() {
	pid := n.running().PID()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return // it is about to be started again
	}
	var u usage
	for text := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(text, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		v, _ := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		switch name {
		case "VmRSS":
			u.Memory = v << 10
		case "Threads":
			u.Threads = v
		}
	}
	if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		u.Files = int64(len(files))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peak = usage{max(n.peak.Memory, u.Memory), max(n.peak.Threads, u.Threads), max(n.peak.Files, u.Files)}
}
