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

// start starts a command that ends with this process, even if a signal kills that. A nil
// environment means that of this process.
func start(path string, args, env []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.SysProcAttr = env, endsWithParent()
	started := make(chan error, 1)
	go func() {
		// The "parent" is the thread that starts the child, so keep the thread alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its status doesn't matter: it was probably killed
		}
		close(p.ended)
	}()
	return p, <-started
}

// kill kills the process, waits until it is gone, and reports whether it was running.
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
