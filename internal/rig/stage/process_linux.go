package stage

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when its parent dies, in case the child
// hangs and doesn't notice the end of its standard input. The child is in another process
// group, so that control-C goes to the parent only, which then ends the child. A command
// that says itself how it ends stays as it is.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	}
}
