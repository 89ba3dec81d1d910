package server

import (
	"log/slog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// observeDoors logs what doors tell, if they have a line for it: requests that they have
// answered, and errors that no caller gets.
func observeDoors(log *slog.Logger) *semel.Events {
	write := door.Log(log)
	return &semel.Events{Answered: write, Troubled: write}
}
