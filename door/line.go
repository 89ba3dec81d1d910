package door

import (
	"log/slog"

	"github.com/semelhq/semel"
)

// Line makes the Attrs of a [semel.Event] from the line that a log should have about it.
func Line(level slog.Level, message string, attrs ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.Any(slog.LevelKey, level), slog.String(slog.MessageKey, message)}, attrs...)
}

// NotRecorded is the event of an error that no caller of a door gets: by it, an outcome
// isn't recorded yet, or nothing could be decided or found out about a call.
func NotRecorded(door string, err error) semel.Event {
	return semel.Event{Door: door, Err: err, Attrs: Line(slog.LevelError, "not recorded", slog.Any("error", err))}
}
