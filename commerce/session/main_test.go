package session_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestMain keeps the engine's warning about [semel.Engine.Run] out of the output: tests in
// virtual time run for days.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(pgtest.Main(m))
}
