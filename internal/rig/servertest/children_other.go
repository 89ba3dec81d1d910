//go:build !linux

package servertest

// children finds none: the processes of a killed server notice and end.
func children(int) []int { return nil }
