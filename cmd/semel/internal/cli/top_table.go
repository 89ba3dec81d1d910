package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/cmd/semel/internal/tail"
	"github.com/semelhq/semel/store"
)

// topTable prints snapshots.
type topTable struct {
	out     io.Writer
	title   string
	inPlace bool // draw each over the last one, with no more rows than a small terminal has
}

// Rows of a table drawn in place. With the lines above them, and four decisions, they fill 24.
const topOperations, topRepeated = 6, 4

// watch prints a snapshot at each interval until ctx is done. An error ends it if it is the first
// answer; later the last snapshot stays, with its age.
func (t *topTable) watch(ctx context.Context, every time.Duration, fetch func() (*topSnapshot, error)) error {
	var shown *topSnapshot
	var at time.Time
	for tick := time.Tick(every); ; {
		text := t.title + "\n"
		s, err := fetch()
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, as it should end
		case err == nil:
			shown, at = s, time.Now()
		case shown == nil:
			return err
		default:
			text += fmt.Sprintf("No answer, asking again: %s. As it was %s ago:\n", printable(err.Error()), ageOf(time.Since(at)))
		}
		if text += t.text(shown) + "\n"; t.inPlace {
			text = "\x1b[H\x1b[2J" + strings.TrimSuffix(text, "\n")
		}
		if _, err := io.WriteString(t.out, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// text is a snapshot as a table.
func (t *topTable) text(s *topSnapshot) string {
	var b strings.Builder
	f, sum := s.Figures, &s.Figures.Total
	todo := 0
	for _, c := range s.checks {
		if c.Mark != '+' {
			todo++
			fmt.Fprintf(&b, "%c %s: %s\n", c.Mark, c.Name, printable(c.Detail))
		}
	}
	if f.Alone {
		fmt.Fprintln(&b, "The store doesn't answer: these are the figures of one node, without the newest of the others")
	}
	if f.Tenant != nil {
		fmt.Fprintf(&b, "of the tenant %q alone\n", *f.Tenant)
	}
	if f.Partial {
		fmt.Fprintln(&b, "A node has more tenants than it counts one by one, so these counts may be too low")
	}
	fmt.Fprintf(&b, "deliveries %d  stopped %d (%.1f %%)  polls %d  conflicts %d  turned away %d  failed %d  refused %d\n%s  nodes %d\n",
		sum.Deliveries, sum.Stopped, 100*sum.StoppedShare, sum.Polls, sum.Conflicts, sum.TurnedAway, sum.FailedAttempts, sum.Refused, s.moment(), f.Nodes)
	if sum.Deliveries == 0 {
		fmt.Fprintln(&b, "\nNothing was delivered in this time.")
	}
	counts := map[string]int64{}
	for _, one := range f.Series {
		counts[one.What] += one.Count
	}
	var rows []string
	for _, d := range tail.Decisions {
		if n := counts[d]; n > 0 {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%.1f %%", d, n, 100*float64(n)/float64(max(sum.Deliveries, 1))))
		}
	}
	t.table(&b, "DECISION\tDELIVERIES\tSHARE", rows, len(rows))
	rows = nil
	for _, o := range f.Operations {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%.1f %%\t%d\t%d\t%d", printable(o.Operation), o.Stopped, 100*o.StoppedShare, o.Deliveries, o.Simultaneous, o.FailedAttempts))
	}
	t.table(&b, "OPERATION\tSTOPPED\tSHARE\tDELIVERIES\tSIMULTANEOUS\tFAILED", rows, max(topOperations-todo, 1))
	rows = nil
	for _, r := range f.Repeated {
		if id, err := store.DecodeID(r.Record); err == nil {
			r.Record = id.Key
		}
		rows = append(rows, fmt.Sprintf("%s\t%d\t%s\t%d\t%s ago", printable(r.Record), r.Repeats, printable(r.Operation), r.Peak, ageOf(f.To.Sub(r.Last))))
	}
	t.table(&b, "REPEATED KEY\tREPEATS\tOPERATION\tPEAK/MIN\tLAST", rows, topRepeated)
	return b.String()
}

// table adds an empty line and a table, unless it has no rows. In place, room bounds the rows.
func (t *topTable) table(b *strings.Builder, head string, rows []string, room int) {
	if len(rows) == 0 {
		return
	}
	more := ""
	if t.inPlace && len(rows) > room {
		rows, more = rows[:room], fmt.Sprintf("and %d more\n", len(rows)-room)
	}
	w := newTable(b)
	fmt.Fprintf(w, "\n%s\n%s\n", head, strings.Join(rows, "\n"))
	_ = w.Flush() // into memory
	b.WriteString(more)
}

// moment shows the latency added lately, and the open calls.
func (s *topSnapshot) moment() (text string) {
	for _, p := range slices.Backward(s.Figures.Points) {
		if p.Deliveries > 0 {
			text = fmt.Sprintf("added p50 %.2f ms  p99 %.2f ms (%s)  ", 1000*p.P50, 1000*p.P99, p.At.UTC().Format("15:04"))
			break
		}
	}
	a := s.Attempts
	switch {
	case s.Figures.Tenant != nil:
		return text + "in flight and held: counted for all tenants only"
	case a == nil:
		return text + "in flight and held: not counted yet"
	}
	age := func(seconds float64) string { return ageOf(time.Duration(seconds * float64(time.Second))) }
	text += fmt.Sprintf("in flight %d (oldest %s)  held %d (oldest %s)", a.InFlight, age(a.OldestInFlight), a.Held, age(a.OldestHeld))
	if s.Figures.Alone {
		text += "  as counted last"
	}
	return text
}
