//go:build !linux

package pgtest

import "os/exec"

// confine leaves a program as it is.
func confine(*exec.Cmd) error { return nil }

// own leaves a file as it is.
func own(string) error { return nil }
