//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a command a process group of its own, so that all of it can be killed: the go
// command doesn't kill the tests that it runs.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
