package redistest

import (
	"os/exec"
	"runtime"
)

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs a command that ends when this process does, even by a signal. Without an
// environment it gets that of this process.
func start(path string, args, env []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.SysProcAttr = env, endsWithParent()
	started := make(chan error, 1)
	go func() {
		// "Parent" is the thread that started the child, so that stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // killed, as a rule
		}
		close(p.ended)
	}()
	return p, <-started
}

// kill ends the process and waits until it is gone. It reports whether the process
// was running.
func (p *process) kill() bool {
	select {
	case <-p.ended:
		return false
	default:
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return true
}
