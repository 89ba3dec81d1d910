package semel

import "github.com/semelhq/semel/internal/engine/line"

// InLine is how many keys have a line of those who take turns, and how many wait in all.
func (e *Engine) InLine() (keys, waiting int) {
	seats, networks := e.turns.seats.Taken()
	return e.turns.Len(), seats + networks
}

// MaxInLine is how many can wait at one key.
const MaxInLine = line.Max
