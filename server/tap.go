package server

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel"
)

// observeDoors logs what doors tell, if they have a line for it: requests that they have
// answered, and errors that no caller gets. A line has no keys, principals or payloads.
func observeDoors(log *slog.Logger) *semel.Events {
	write := func(e semel.Event) { writeLine(log, e.Attrs) }
	return &semel.Events{Answered: write, Troubled: write}
}

// writeLine writes the line that attributes of an event make; see door.Line.
func writeLine(log *slog.Logger, line []slog.Attr) {
	level, message := slog.LevelInfo, ""
	attrs := make([]slog.Attr, 0, len(line))
	for _, a := range line {
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
