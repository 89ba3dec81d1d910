package demo

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when its parent dies, should it
// hang so that it does not see the end of its standard input. The child is in a
// process group of its own: control-C is for the parent, which then ends it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
