package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// ChildCommand is the hidden command under which the program runs itself as one
// of the demo's servers.
const ChildCommand = "demo-child"

// announcement is the first line that a child prints.
type announcement struct {
	URL string `json:"url"`
}

// child is a server in a process of its own.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	url    string
	stderr *tail
	exited chan struct{} // closed when the process is gone
}

const startTimeout = 15 * time.Second

// startChild runs this program again as a server and waits until it has said
// where it listens. It ends when its standard input does, so it can't outlive
// the process that started it.
func startChild(ctx context.Context, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(exe, append([]string{ChildCommand}, args...)...), stderr: &tail{}, exited: make(chan struct{})}
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
		var a announcement
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		c.url = a.URL
		said <- err
		_ = c.cmd.Wait() // how it ended is told by who ended it
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
		return nil, fmt.Errorf("start %s: %w%s", args[0], err, c.stderr.quote())
	}
	return c, nil
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

// serve is the child's side: it listens on a free port of the loopback
// interface, says where, and serves until standard input ends or ctx is done.
func serve(ctx context.Context, handler http.Handler, stdin io.Reader, stdout io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	line, err := json.Marshal(announcement{URL: "http://" + listener.Addr().String()})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", line); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		_ = server.Close() // the parent is done, or gone
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// tail keeps the end of what a child says on standard error.
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
