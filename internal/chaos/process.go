//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a program that is started again whenever it ends, as a service manager
// does, until it is stopped for good.
type process struct {
	name    string
	command func() (*exec.Cmd, error)
	// read reads its standard output to the end, and calls ready when it serves.
	read func(out *os.File, ready func())
	// tell is called with what happens to it.
	tell func(text string)

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended and is read
	serving chan struct{} // closed when it serves
	wanted  bool
	quiet   bool // its end is intended
	over    sync.WaitGroup
	starts  int
}

// again is the pause before an ended process is started again.
const again = 200 * time.Millisecond

// start runs the process until stop, and starts it again whenever it ends.
func (p *process) start() error {
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
	if err := p.launch(); err != nil {
		return err
	}
	p.over.Go(p.keep)
	return nil
}

// keep starts the process again whenever it has ended.
func (p *process) keep() {
	for {
		p.mu.Lock()
		ended, cmd := p.ended, p.cmd
		p.mu.Unlock()
		<-ended
		p.mu.Lock()
		wanted, quiet := p.wanted, p.quiet
		p.mu.Unlock()
		if !wanted {
			return
		}
		if !quiet {
			p.tell(fmt.Sprintf("%s has ended by itself: %v", p.name, cmd.ProcessState))
		}
		time.Sleep(again)
		if err := p.launch(); err != nil {
			p.tell(fmt.Sprintf("%s does not start: %v", p.name, err))
			return
		}
	}
}

// launch starts the program once.
func (p *process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return nil
	}
	cmd, err := p.command()
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = in
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// The child ends when the thread that has started it does, so that stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = in.Close() // the child has its own
		for _, f := range []any{cmd.Stdin, cmd.Stderr} {
			if f, ok := f.(*os.File); ok && f != os.Stderr {
				_ = f.Close() // so it has of these
			}
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // its status doesn't matter
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return errors.Join(err, out.Close())
	}
	ended, serving := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		p.read(out, func() { once.Do(func() { close(serving) }) })
		_ = out.Close()
		<-exited
		close(ended)
	}()
	p.cmd, p.ended, p.serving, p.quiet = cmd, ended, serving, false
	p.starts++
	return nil
}

// state is the running program.
func (p *process) state() (cmd *exec.Cmd, ended, serving chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.ended, p.serving
}

// await waits until the process serves, through all its starts.
func (p *process) await(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		_, ended, serving := p.state()
		select {
		case <-ended:
			time.Sleep(again / 4)
			continue
		default:
		}
		select {
		case <-serving:
			return nil
		case <-timer.C:
			return fmt.Errorf("%s does not serve after %v", p.name, limit)
		case <-ended:
		}
	}
}

// signal sends a signal to the program that runs now.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		p.quiet = true
	}
	return p.cmd.Process.Signal(sig)
}

// pid is that of the program that runs now.
func (p *process) pid() int {
	cmd, _, _ := p.state()
	return cmd.Process.Pid
}

// kill ends the program at once. It is started again.
func (p *process) kill() error {
	_, ended, _ := p.state()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-ended
	return nil
}

// standStill stops the program, and returns once none of its threads is in the kernel
// any more. Call resume to continue it.
func (p *process) standStill() (resume func(), err error) {
	pid := p.pid()
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may have ended
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return resume, err
	}
	deadline := time.Now().Add(recoveryTimeout)
	for !stoppedThreads(pid) {
		if time.Now().After(deadline) {
			return resume, fmt.Errorf("%s does not stop", p.name)
		}
		time.Sleep(time.Millisecond)
	}
	return resume, nil
}

// stoppedThreads reports whether all threads of a process are stopped, or gone.
func stoppedThreads(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses.
		state := strings.TrimSpace(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z") {
			return false
		}
	}
	return true
}

// stop ends the process for good, in an orderly way if it is given the time.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	p.wanted, p.quiet = false, true
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	if grace > 0 {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		}
	}
	_ = cmd.Process.Kill()
	p.over.Wait()
}

// hold ends the program and doesn't start it again until it is released.
func (p *process) hold() (resume func() error) {
	p.stop(0)
	return p.start
}
