package semeltest

import "testing"

// On is the world in another test.
func On(w *World, t testing.TB) *World {
	on := *w
	on.t = t
	return &on
}
