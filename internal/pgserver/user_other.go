//go:build !linux

package pgserver

import "os/exec"

// confine leaves a program as it is.
func confine(*exec.Cmd) error { return nil }

// Own leaves a file as it is.
func Own(string) error { return nil }
