package enginetest

import (
	"log/slog"
	"os"
	"testing"
)

// TestMain keeps the engine's warning about [Engine.Run] out of the output: in virtual time
// most tests run for longer than a minute, and sweep when they mean to.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
