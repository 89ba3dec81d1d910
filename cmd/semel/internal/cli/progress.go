package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress is a bar that shows how many of a number of things are done, on a terminal only.
type progress struct {
	w     io.Writer
	on    bool
	total int
	shown time.Time
}

const (
	// progressWidth is how wide the bar is, in characters.
	progressWidth = 30
	// progressPause bounds how often it is drawn.
	progressPause = 100 * time.Millisecond
)

// newProgress makes a bar for so many things. A change of few is over before it is read.
func newProgress(from *recordsFrom, w io.Writer, total int) *progress {
	return &progress{w: w, on: total > 1 && from.terminal(w), total: total}
}

// done says how many are done.
func (p *progress) done(n int) {
	if now := time.Now(); p.on && (n == p.total || now.Sub(p.shown) >= progressPause) {
		p.shown = now
		full := progressWidth * n / p.total
		fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %d of %d", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), n, p.total)
	}
}

// clear makes room for other lines.
func (p *progress) clear() {
	if p.on && !p.shown.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = time.Time{}
	}
}
