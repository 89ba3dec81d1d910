package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// announcement is the first line that a child prints: its address, and that of its admin
// listener, if it has one.
type announcement struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url,omitempty"`
}

// child is a server in another process.
type child struct {
	announcement
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	exited chan struct{} // closed when the process is gone
}

const startTimeout = 15 * time.Second

// startChild runs this program again as a server, in dir, and waits until it has
// printed its address. It ends when its standard input does, so it can't
// outlive the process that started it.
func startChild(ctx context.Context, dir, command string, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(exe, append([]string{command}, args...)...), stderr: &tail{}, exited: make(chan struct{})}
	c.cmd.Dir = dir
	c.cmd.Env = environment()
	c.cmd.Stderr = c.stderr
	dieWithParent(c.cmd)
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	said := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &c.announcement)
		}
		said <- err
		_ = c.cmd.Wait() // kill or stop says how it ended
		close(c.exited)
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case err = <-said:
	case <-timer.C:
		err = fmt.Errorf("no answer within %v", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("start %s: %w%s", command, err, c.stderr.quote())
	}
	return c, nil
}

// environment is the environment of this process without the service's settings, so
// that the demo can't touch another service's store.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(v), "SEMEL_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") && !strings.HasPrefix(v, "WATCHDOG_") {
			env = append(env, v)
		}
	}
	return env
}

// kill ends the process at once, as kill -9 does, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be gone already
	<-c.exited
}

// stop asks the process to end, and kills it if it does not.
func (c *child) stop() {
	_ = c.stdin.Close()
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		c.kill()
	}
}

// tail keeps the end of a child's standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.text)); s != "" {
		return "\n" + s
	}
	return ""
}
