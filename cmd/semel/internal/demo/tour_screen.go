package demo

import "fmt"

// tourColumns has the widths of the table.
const tourColumns = "%-14s %6s %8s %8s %6s %8s"

// tourOpening says what is going to happen.
func (s *Screen) tourOpening(t *tour) {
	title := "One storm for each door of Semel"
	if t.opts.Unguarded {
		title += ", its guard switched off"
	}
	s.print(s.paint(bold, title) + "\n")
	s.line("In each storm %d orders are sent %d times, at once and out of order. Some", stormOrders, stormCopies)
	s.line("senders hang up. In the middle Semel is killed (kill -9) and started again.")
	s.print("\n")
	s.line("sent     copies of the orders")
	s.line("answers  senders that stayed, and got the answer of their order")
	s.line("effects  charges in the toy service's own ledger; each order should have one")
	s.line("held     calls that were cut off: looked up in the ledger, and settled")
	s.print("\n")
	s.line("%s", s.paint(dim, fmt.Sprintf(tourColumns, "door", "sent", "answers", "effects", "held", "seconds")))
}

// row is the line of a door.
func (r *DoorReport) row() string {
	effects := "" // it is counted in the end
	if r.Effects > 0 {
		effects = fmt.Sprint(r.Effects)
	}
	return fmt.Sprintf(tourColumns, r.Door, fmt.Sprint(r.Sent), fmt.Sprint(r.Answers), effects, fmt.Sprint(r.Held), fmt.Sprintf("%.1f", r.Seconds))
}

// tourRow is the line of a door that is done.
func (s *Screen) tourRow(r *DoorReport) {
	mark, colour := "  ok", green
	if !r.OK {
		mark, colour = "  WRONG", red
	}
	s.line("%s%s", r.row(), s.paint(colour, mark))
}

// tourClosing is the sentence at the end.
func (s *Screen) tourClosing(r *TourReport) {
	s.print("\n")
	if sum := r.totals(); r.OK {
		s.print(s.paint(bold, fmt.Sprintf("%d orders, %d copies: %d charges, each order once.", sum.Orders, sum.Sent, sum.Effects)) + "\n")
	} else {
		s.faults("The tour", r.Faults)
	}
	s.ending(r.Seconds, r.Seed)
}
