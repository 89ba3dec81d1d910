//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/semelhq/semel/internal/rig/stage"
)

// process is a program that is started again whenever it ends, as a service manager
// does, until it is stopped for good.
type process struct {
	name string
	// program makes what runs, at each start; the first is 1.
	program func(start int) (program, error)
	// tell is called with what happens to it.
	tell func(text string)

	mu     sync.Mutex
	now    *stage.Process
	wanted bool
	quiet  bool // its end is intended
	over   sync.WaitGroup
	starts int
}

// program is one run of a process.
type program struct {
	*exec.Cmd
	// read reads its standard output to the end, and calls ready when it serves.
	read func(out io.Reader, ready func())
	// feed, if it isn't nil, writes to its standard input.
	feed func(in io.Writer)
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
		now := p.running()
		<-now.Exited()
		p.mu.Lock()
		wanted, quiet := p.wanted, p.quiet
		p.mu.Unlock()
		if !wanted {
			return
		}
		if !quiet {
			p.tell(fmt.Sprintf("%s has ended by itself: %v", p.name, now.State()))
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
	prog, err := p.program(p.starts + 1)
	if err != nil {
		return err
	}
	now, err := stage.Launch(prog.Cmd, prog.read)
	if log, ok := prog.Stderr.(*os.File); ok && log != os.Stderr {
		_ = log.Close() // the child has its own
	}
	if err != nil {
		return err
	}
	p.now, p.quiet = now, false
	p.starts++
	if prog.feed != nil {
		prog.feed(now.Stdin)
	}
	return nil
}

// running is the program that runs now.
func (p *process) running() *stage.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// await waits until the process serves, through all its starts.
func (p *process) await(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		now := p.running()
		select {
		case <-now.Exited():
			time.Sleep(again / 4)
			continue
		default:
		}
		select {
		case <-now.Ready():
			return nil
		case <-timer.C:
			return fmt.Errorf("%s does not serve after %v", p.name, limit)
		case <-now.Exited():
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
	return p.now.Signal(sig)
}

// kill ends the program at once. It is started again.
func (p *process) kill() error {
	now := p.running()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-now.Exited()
	return nil
}

// standStill stops the program, and returns once none of its threads is in the kernel
// any more. Call resume to continue it.
func (p *process) standStill() (resume func(), err error) {
	pid := p.running().PID()
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

// stop ends the process for good, in an orderly way if it has the time.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	p.wanted, p.quiet = false, true
	now := p.now
	p.mu.Unlock()
	if now == nil {
		return
	}
	_ = now.Signal(syscall.SIGCONT)
	if grace > 0 {
		_ = now.Signal(syscall.SIGTERM)
		select {
		case <-now.Exited():
		case <-time.After(grace):
		}
	}
	now.Kill()
	p.over.Wait()
}

// hold ends the program and doesn't start it again until it is released.
func (p *process) hold() (resume func() error) {
	p.stop(0)
	return p.start
}

// now is the machine's monotonic clock, which all processes of a run share and which
// no fault of a run touches.
func now() int64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno) // Linux has had this clock for twenty years
	}
	return ts.Nano()
}
