package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Address is the line that a program prints when it is ready, as 'semel serve --json'
// does.
type Address struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url,omitempty"`
}

// Process is a running program.
type Process struct {
	// Address is where it serves, if it was started by [Start].
	Address
	// Stdin is its standard input, unless it was started by [Run]. Programs that end with it
	// can't outlive this process.
	Stdin io.WriteCloser

	cmd    *exec.Cmd
	stderr tail
	ready  chan struct{}
	exited chan struct{}
	err    error // why it ended; set before exited is closed
}

// startTimeout is how long a program may take to say that it is ready.
const startTimeout = 30 * time.Second

// Self is this program again.
func Self(args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.Command(exe, args...), nil
}

// Start starts a program and waits until it has printed its [Address].
func Start(ctx context.Context, cmd *exec.Cmd) (*Process, error) {
	var at Address
	var first error // of the first line
	p, err := Launch(cmd, func(out io.Reader, ready func()) {
		r := bufio.NewReader(out)
		line, err := r.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &at)
		}
		first = err
		ready()
		_, _ = io.Copy(io.Discard, r)
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ready:
		err = first
	case <-time.After(startTimeout):
		err = fmt.Errorf("no answer within %v", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("start %s: %w%s", strings.Join(cmd.Args, " "), err, p.Quote())
	}
	p.Address = at
	return p, nil
}

// Launch starts a program without waiting for it. read reads its standard output to the
// end, and calls ready when the program serves.
func Launch(cmd *exec.Cmd, read func(out io.Reader, ready func())) (p *Process, err error) {
	p = newProcess(cmd)
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	if p.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = in
	ended, err := p.run()
	_ = in.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	go func() {
		read(out, sync.OnceFunc(func() { close(p.ready) }))
		_ = out.Close()
		p.err = <-ended
		close(p.exited)
	}()
	return p, nil
}

// Run starts a program that prints nothing to wait for, as a database server. You say where
// its output goes.
func Run(cmd *exec.Cmd) (*Process, error) {
	p := newProcess(cmd)
	ended, err := p.run()
	if err != nil {
		return nil, err
	}
	go func() {
		p.err = <-ended
		close(p.exited)
	}()
	return p, nil
}

func newProcess(cmd *exec.Cmd) *Process {
	return &Process{cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{})}
}

// run starts the program, which ends with this process even if that is killed.
func (p *Process) run() (ended <-chan error, err error) {
	dieWithParent(p.cmd)
	started, end := make(chan error, 1), make(chan error, 1)
	go func() {
		// The child ends when the thread that has started it does, so that stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			end <- p.cmd.Wait()
		}
	}()
	return end, <-started
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ready is closed when the program serves.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// Exited is closed when the program has ended and all its output is read.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State says how the program ended; nil while it runs.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.exited:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal. It may have ended.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the program at once, as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	if p.Stdin != nil {
		_ = p.Stdin.Close() // which ends what it has started itself
	}
	<-p.exited
}

// stopTimeout is how long a program may take to end in an orderly way.
const stopTimeout = 15 * time.Second

// Stop closes the program's standard input, and kills it if it hasn't ended then after a
// while. It returns an error if the program did not end well.
func (p *Process) Stop() error {
	_ = p.Stdin.Close() // it may be gone
	return p.wait()
}

// Terminate ends the program as a service manager does, by SIGTERM. Otherwise it is
// [Process.Stop].
func (p *Process) Terminate() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.wait()
}

func (p *Process) wait() error {
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %v%s", p.cmd.Path, stopTimeout, p.Quote())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.cmd.Path, p.err, p.Quote())
	}
	return nil
}

// Quote is the end of what the program wrote to standard error, on lines of its own.
func (p *Process) Quote() string {
	if s := strings.TrimSpace(p.stderr.String()); s != "" {
		return "\n" + s
	}
	return ""
}

// tail is a writer that keeps the end of the text.
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

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
