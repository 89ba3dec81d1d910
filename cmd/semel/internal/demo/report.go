package demo

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel/internal/wire"
)

// Report has the results of the demo; semel demo --json prints it. Effects are
// always counted in the payment service's own ledger.
type Report struct {
	OK      bool    `json:"ok"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// Control is the burst straight at the payment service.
	Control Burst `json:"control"`
	// Protected is the same burst through Semel.
	Protected Burst `json:"protected"`
	// Conflict is another amount under a key that has been used.
	Conflict Conflict `json:"conflict"`
	// LostResponse is an answer that its caller never read, and the retry.
	LostResponse Recovery `json:"lost_response"`
	// Crash is a kill -9 of Semel in the middle of a charge, a restart and
	// retries.
	Crash Recovery `json:"crash"`
	// Faults says in words what went wrong; empty when OK.
	Faults []string `json:"faults"`
}

// Burst is many copies of some orders, sent all at once.
type Burst struct {
	Orders int `json:"orders"`
	// Sent is how many copies of the orders were sent, Requests how many
	// requests that took, including retries of copies that had to wait.
	Sent     int `json:"sent"`
	Requests int `json:"requests"`
	// Effects is how many charges the payment service made for them.
	Effects int `json:"effects"`
	// Executed and Replayed count the copies by their final answer: a fresh one
	// or a stored one. InFlight counts the answers "wait, it is running".
	Executed int `json:"executed"`
	Replayed int `json:"replayed"`
	InFlight int `json:"in_flight"`
	// Failed counts the copies without a successful answer, and Differing the orders with copies
	// that got different answers.
	Failed    int     `json:"failed"`
	Differing int     `json:"differing"`
	Seconds   float64 `json:"seconds"`
}

// Conflict is the answer to a changed order under a used key.
type Conflict struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Effects is how many charges the order has, the first one included.
	Effects int `json:"effects"`
}

// Recovery is one order that went wrong on the way, and its retries.
type Recovery struct {
	Sent    int `json:"sent"`
	Effects int `json:"effects"`
	// Seen is what the retries got, in order; equal answers in a row are one.
	Seen []Seen `json:"seen"`
	// Replayed says that the last retry got a stored answer.
	Replayed bool `json:"replayed"`
	// Attempts is how many attempts the order has during which Semel was killed.
	Attempts int `json:"attempts,omitempty"`
	// KilledPID is the process that was killed, if one was.
	KilledPID int     `json:"killed_pid,omitempty"`
	Seconds   float64 `json:"seconds"`
	// Record is Semel's record of that order after the last retry; nil if it has none.
	Record *wire.Record `json:"record,omitempty"`
}

// Seen is one or more equal answers in a row.
type Seen struct {
	Status   int    `json:"status"`
	Code     string `json:"code,omitempty"`
	Replayed bool   `json:"replayed,omitempty"`
	Times    int    `json:"times"`
}

func (r *Recovery) see(a answer) {
	r.Sent++
	s := Seen{Status: a.status, Code: a.code, Replayed: a.replayed, Times: 1}
	if n := len(r.Seen); n > 0 {
		if last := &r.Seen[n-1]; last.Status == s.Status && last.Code == s.Code && last.Replayed == s.Replayed {
			last.Times++
			return
		}
	}
	r.Seen = append(r.Seen, s)
}

// String is the answer in words.
func (s Seen) String() string {
	text := fmt.Sprintf("%d %s", s.Status, http.StatusText(s.Status))
	switch {
	case s.Code != "":
		text += ", " + s.Code
	case s.Replayed:
		text += ", replayed"
	case s.Status/100 == 2:
		text += ", executed"
	}
	if s.Times > 1 {
		text += fmt.Sprintf(" (%d times)", s.Times)
	}
	return text
}

// path is what the retries got, in short.
func (r *Recovery) path() string {
	var steps []string
	for _, s := range r.Seen {
		switch {
		case s.Code != "":
			steps = append(steps, s.Code)
		case s.Replayed:
			steps = append(steps, "replay")
		default:
			steps = append(steps, fmt.Sprint(s.Status))
		}
	}
	return strings.Join(steps, ", ")
}

// row is what the small table says of a chapter.
type row struct {
	what                  string
	sent, orders, effects int
	got                   string // by the duplicates
}

// rows are the chapters in short, for the screen and the page.
func (r *Report) rows() []row {
	return []row{
		{"without a guard", r.Control.Sent, orders, r.Control.Effects, "a charge each"},
		{"behind Semel", r.Protected.Sent, orders, r.Protected.Effects, fmt.Sprintf("%d replays", r.Protected.Replayed)},
		{"changed amount, same key", 2, 1, r.Conflict.Effects, fmt.Sprint(r.Conflict.Status, " ", r.Conflict.Code)},
		{"lost response, then retries", r.LostResponse.Sent, 1, r.LostResponse.Effects, r.LostResponse.path()},
		{"kill -9, then retries", r.Crash.Sent, 1, r.Crash.Effects, r.Crash.path()},
	}
}

// sentence is the whole demo in one.
func (r *Report) sentence() string {
	return fmt.Sprintf("%d requests for %d orders: %d charges without a guard, %d behind Semel.", r.Control.Sent, orders, r.Control.Effects, r.Protected.Effects)
}

// faults says in words what went wrong; never nil, so that JSON has a list.
type faults []string

func (f *faults) must(what string, ok bool) {
	if !ok {
		*f = append(*f, what)
	}
}

func (f *faults) want(what string, got, want int) {
	f.must(fmt.Sprintf("%s: %d instead of %d", what, got, want), got == want)
}

// judge compares the results with Semel's promises.
func (r *Report) judge() {
	f := faults{}
	f.want("copies sent without a guard", r.Control.Sent, orders*copies)
	f.want("charges without a guard, one for each copy", r.Control.Effects, orders*copies)
	f.want("copies without an answer, without a guard", r.Control.Failed, 0)
	f.want("copies sent through the guard", r.Protected.Sent, orders*copies)
	f.want("charges behind the guard", r.Protected.Effects, orders)
	f.want("copies that executed behind the guard", r.Protected.Executed, orders)
	f.want("copies replayed behind the guard", r.Protected.Replayed, orders*(copies-1))
	f.want("copies without a successful answer behind the guard", r.Protected.Failed, 0)
	f.want("orders whose copies got different answers behind the guard", r.Protected.Differing, 0)
	f.want("status for a changed amount", r.Conflict.Status, http.StatusUnprocessableEntity)
	f.want("charges after the changed amount", r.Conflict.Effects, 1)
	f.want("charges after the lost response", r.LostResponse.Effects, 1)
	f.must("the retry after the lost response got no stored answer", r.LostResponse.Replayed)
	f.want("charges after the crash", r.Crash.Effects, 1)
	f.want("attempts at the charge that was under way in the crash", r.Crash.Attempts, 1)
	f.must("the last retry after the crash got no stored answer", r.Crash.Replayed)
	r.Faults, r.OK = f, len(f) == 0
}
