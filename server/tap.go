package server

import (
	"log/slog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/server/config"
)

// observeDoors logs what doors tell: a line about each delivery, unless the configuration
// wants none, and errors that no caller gets.
func observeDoors(log *slog.Logger, c *config.Log) *semel.Events {
	if c.Deliveries == config.DeliveriesOff {
		return &semel.Events{Troubled: door.Troubles(log)}
	}
	return door.Log(log, outcomeLevel(c))
}

// outcomeLevel is the level of the line about a delivery that got its outcome.
func outcomeLevel(c *config.Log) slog.Level {
	if c.Deliveries == config.DeliveriesDebug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
