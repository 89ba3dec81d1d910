package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/demotest"
)

// TestDemo sends the requests that the demo prints: another amount gets the answer of the first, and
// a webhook of yesterday is handled.
func TestDemo(t *testing.T) {
	d := demotest.Start(t, demo)
	bodies := d.Want(http.StatusOK, http.StatusOK, http.StatusOK)
	if !strings.Contains(bodies[0], `"ch_1"`) || !strings.Contains(bodies[1], `"ch_1"`) {
		t.Errorf("%q", bodies)
	}
	if shown := d.End(); strings.Count(shown, "bank: charge") != 2 {
		t.Error(shown)
	}
}
