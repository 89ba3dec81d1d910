package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Screen prints the demo's progress. On a terminal the last line is updated while
// something runs; elsewhere there are plain lines only.
type Screen struct {
	w        io.Writer
	terminal bool
	colour   bool
	chapters int
	mu       sync.Mutex
	moving   bool // the last line has no end yet
}

// NewScreen makes a screen on w. Colours follow NO_COLOR and TERM.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	s.colour = s.terminal && os.Getenv("NO_COLOR") == ""
	return s
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (s *Screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// print writes whole lines, over a moving one if there is one.
func (s *Screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving {
		text = "\r\x1b[K" + text
		s.moving = false
	}
	// The other end may be closed.
	_, _ = io.WriteString(s.w, text)
}

// progress replaces the moving line, on a terminal.
func (s *Screen) progress(text func() string) {
	if !s.terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving = true
	_, _ = fmt.Fprintf(s.w, "\r\x1b[K   %s", s.paint(dim, text()))
}

// live moves the line until stop is called.
func (s *Screen) live(text func() string) (stop func()) {
	if !s.terminal {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(80 * time.Millisecond)
		defer tick.Stop()
		for {
			s.progress(text)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

func (s *Screen) opening(st *story) {
	guard := "the same behind 'semel serve', on the embedded store"
	if st.opts.Unguarded {
		guard = "the same behind 'semel serve', its guard switched off"
	}
	s.print(s.paint(bold, "A payment service that charges as often as it is asked to, and Semel in front of it") + "\n")
	s.line("payments  %s  a charge takes %v to %v", st.provider.URL, minDelay, maxDelay)
	s.line("guarded   %s  %s", st.guard.URL, guard)
	s.line("admin     %s  for Semel's operators", st.guard.AdminURL)
	s.line("charges are counted in the payment service's own ledger")
}

// staying shows what there is to try while everything stays up.
func (s *Screen) staying(st *story) {
	s.print("\n" + s.paint(bold, "Everything stays up until you press control-C") + "\n")
	s.line("dashboard %s/", st.guard.AdminURL)
	s.line("          all of this on one page: open it in a browser, and look for order:rush-1 or %s", heldRefund)
	s.line("charge    curl -i %s/charges -H 'Content-Type: application/json' \\", st.guard.URL)
	s.line("            -H 'Idempotency-Key: try-1' -d '{\"order\":\"try-1\",\"amount\":1200,\"currency\":\"EUR\"}'")
	s.line("          again, it gets the stored answer; with another amount, 422")
	s.line("ledger    %s/charges?order=try-1", st.provider.URL)
	s.line("records   %s/v1/records?q=operation:payments.charge", st.guard.AdminURL)
	s.line("API       %s/docs", st.guard.AdminURL)
	s.line("config    %s", filepath.Join(st.dir, configName))
}

func (s *Screen) chapter(format string, args ...any) {
	s.chapters++
	s.print(fmt.Sprintf("\n%s\n", s.paint(bold, fmt.Sprintf("%d. %s", s.chapters, fmt.Sprintf(format, args...)))))
}

func (s *Screen) line(format string, args ...any) {
	s.print("   " + fmt.Sprintf(format, args...) + "\n")
}

// seen shows answers, one below the other.
func (s *Screen) seen(who string, answers []Seen) {
	for _, a := range answers {
		s.line("%s %s", who, a)
		who = strings.Repeat(" ", len(who)-min(len(who), 4)) + "then"
	}
}

// figure is a number that is good or bad, but isn't checked.
func (s *Screen) figure(good bool, format string, args ...any) {
	colour := red
	if good {
		colour = green
	}
	s.print("   " + s.paint(colour, fmt.Sprintf(format, args...)) + "\n")
}

// verdict is the result of a check.
func (s *Screen) verdict(ok bool, format string, args ...any) {
	mark := "ok: "
	if !ok {
		mark = "WRONG: "
	}
	s.figure(ok, "%s", mark+fmt.Sprintf(format, args...))
}

// quote shows a text in lines that fit most terminals.
func (s *Screen) quote(text string) {
	const width = 74
	line := "\""
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > width {
			s.print("   " + line + "\n")
			line = ""
		}
		if line != "" && line != "\"" {
			line += " "
		}
		line += word
	}
	s.print("   " + line + "\"\n")
}

// closing is the small table and the sentence.
func (s *Screen) closing(r *Report) {
	s.print("\n   " + s.paint(dim, fmt.Sprintf("%-27s %6s %7s %8s   %s", "", "sent", "orders", "charges", "duplicates got")) + "\n")
	for _, x := range r.rows() {
		colour := red
		if x.effects == x.orders {
			colour = green
		}
		s.print(fmt.Sprintf("   %-27s %6d %7d %s   %s\n", x.what, x.sent, x.orders, s.paint(colour, fmt.Sprintf("%8d", x.effects)), x.got))
	}
	s.print("\n")
	if r.OK {
		s.print(s.paint(bold, r.sentence()) + "\n")
	} else {
		s.faults("The demo", r.Faults)
	}
	s.ending(r.Seconds, r.Seed)
}

// faults lists what went wrong.
func (s *Screen) faults(who string, faults []string) {
	s.print(s.paint(red, who+" found what should not be:") + "\n")
	for _, f := range faults {
		s.line("%s", f)
	}
}

// ending says how long it took, and how to repeat it.
func (s *Screen) ending(seconds float64, seed uint64) {
	s.print(s.paint(dim, fmt.Sprintf("%.1f s; --seed %d repeats it", seconds, seed)) + "\n")
}
