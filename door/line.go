package door

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel"
)

// Line makes the Attrs of a [semel.Event] from the line that a log should have about it.
func Line(level slog.Level, message string, attrs ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.Any(slog.LevelKey, level), slog.String(slog.MessageKey, message)}, attrs...)
}

// Log returns a function for Answered and Troubled of [semel.Events] that writes the lines of
// the events which have one.
func Log(log *slog.Logger) func(semel.Event) {
	return func(e semel.Event) {
		level, message := slog.LevelInfo, ""
		attrs := make([]slog.Attr, 0, len(e.Attrs))
		for _, a := range e.Attrs {
			switch a.Key {
			case slog.LevelKey:
				level, _ = a.Value.Any().(slog.Level)
			case slog.MessageKey:
				message = a.Value.String()
			default:
				attrs = append(attrs, a)
			}
		}
		if message != "" {
			log.LogAttrs(context.Background(), level, message, attrs...)
		}
	}
}

// NotRecorded is the event of an error that no caller of a door gets: by it, an outcome
// isn't recorded yet, or nothing could be decided or found out about a call.
func NotRecorded(door string, err error) semel.Event {
	return semel.Event{Door: door, Err: err, Attrs: Line(slog.LevelError, "not recorded", slog.Any("error", err))}
}
