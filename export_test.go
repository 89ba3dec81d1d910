package semel

// InLine is how many keys have a line of those who take turns, and how many wait in all.
func (e *Engine) InLine() (keys, waiting int) {
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	return len(e.turns.lines), int(e.turns.seats.count.Load()) + len(e.turns.seats.of)
}

// MaxInLine is how many can wait at one key.
const MaxInLine = maxInLine
