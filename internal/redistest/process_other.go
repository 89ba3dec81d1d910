//go:build !linux

package redistest

import (
	"os"
	"syscall"
)

// Elsewhere a server outlives a test process that is killed, and cannot be paused.
const (
	pauseSignal  = noSignal("pause")
	resumeSignal = noSignal("resume")
)

type noSignal string

func (s noSignal) String() string { return string(s) }
func (noSignal) Signal()          {}

var _ os.Signal = noSignal("")

func endsWithParent() *syscall.SysProcAttr { return nil }
