package demo

import (
	"fmt"
	"html"
	"os"
	"strings"

	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// pageHead is all that the page needs: it loads nothing, and the policy keeps a browser from
// loading anything for it. Every element is closed, so that programs for XML can read it too.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Semel: a recorded demo</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff; --good: #116329; --bad: #a40e26; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9da7b3; --line: #3d444d; --paper: #0d1117; --good: #56d364; --bad: #ff938a; }
}
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 54rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { margin-top: 2.2rem; font-size: 1.2rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; min-width: 100%; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
footer, .soft { color: var(--soft); }
</style>
</head>
<body>
`

// page writes HTML, and is the only one that does: whatever comes from a run is escaped here.
type page struct{ strings.Builder }

// element writes an element around a text, with a class if there is one.
func (p *page) element(tag, class, format string, args ...any) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(p, "<%s%s>%s</%s>\n", tag, class, html.EscapeString(fmt.Sprintf(format, args...)), tag)
}

// cell is one field of a table.
type cell struct{ class, text string }

// number is a cell with a count.
func number(n int) cell { return cell{"n", fmt.Sprint(n)} }

// words are cells of text.
func words(all ...string) []cell {
	cells := make([]cell, len(all))
	for i, text := range all {
		cells[i].text = text
	}
	return cells
}

// table writes a table. The first cell of a row names it.
func (p *page) table(caption string, head []cell, rows [][]cell) {
	p.WriteString("<div><table>\n")
	p.element("caption", "", "%s", caption)
	p.WriteString("<thead><tr>\n")
	for _, c := range head {
		p.element("th", c.class, "%s", c.text)
	}
	p.WriteString("</tr></thead>\n<tbody>\n")
	for _, row := range rows {
		p.WriteString("<tr>\n")
		for i, c := range row {
			tag := "td"
			if i == 0 {
				tag = "th"
			}
			p.element(tag, c.class, "%s", c.text)
		}
		p.WriteString("</tr>\n")
	}
	p.WriteString("</tbody>\n</table></div>\n")
}

// writePage writes the results as a page of HTML. A crash can leave a part of the file, which
// the next run replaces.
func (r *Report) writePage(file string) error {
	return os.WriteFile(file, []byte(r.page()), 0o666)
}

func (r *Report) page() string {
	p := &page{}
	p.WriteString(pageHead)
	p.element("h1", "", "%s", r.sentence())
	p.element("p", "", "A toy payment service charges as often as it is asked to. %d orders were sent to it %d times each, all at once: straight, and then through Semel. The charges are counted in the payment service’s own ledger.", r.Control.Orders, copies)
	if r.OK {
		p.element("p", "good", "Every count is what it should be.")
	} else {
		p.element("p", "bad", "This run found what should not be:")
		p.WriteString("<ul>\n")
		for _, f := range r.Faults {
			p.element("li", "bad", "%s", f)
		}
		p.WriteString("</ul>\n")
	}
	var rows [][]cell
	for _, x := range r.rows() {
		class := "n bad"
		if x.effects == x.orders {
			class = "n good"
		}
		rows = append(rows, []cell{{"", x.what}, number(x.sent), number(x.orders), {class, fmt.Sprint(x.effects)}, {"", x.got}})
	}
	p.table("What was sent, and what was charged", []cell{{}, {"n", "sent"}, {"n", "orders"}, {"n", "charges"}, {"", "duplicates got"}}, rows)
	p.bursts(r)
	p.element("h2", "", "A changed amount")
	p.element("p", "", "An order came again under its key with ten times the amount. It was answered %d %s.", r.Conflict.Status, r.Conflict.Code)
	if r.Conflict.Detail != "" {
		p.element("p", "soft", "%s", r.Conflict.Detail)
	}
	p.element("h2", "", "A lost answer")
	p.element("p", "", "The caller hung up after the payment service had charged, and asked again.")
	p.deliveries(&r.LostResponse, "no answer: the caller had hung up")
	p.crash(&r.Crash)
	p.WriteString("<footer>\n")
	p.element("p", "", "Recorded by semel demo in %.1f s on one machine; --seed %d repeats it. How long a step takes, and how often one is told to wait, depends on the machine.", r.Seconds, r.Seed)
	p.WriteString("</footer>\n</body>\n</html>\n")
	return p.String()
}

// bursts compares the two bursts.
func (p *page) bursts(r *Report) {
	p.element("h2", "", "The two bursts")
	a, b := &r.Control, &r.Protected
	var rows [][]cell
	for _, x := range []struct {
		what string
		a, b int
	}{
		{"copies sent", a.Sent, b.Sent},
		{"requests, with those of copies that had to wait", a.Requests, b.Requests},
		{"copies that executed", a.Executed, b.Executed},
		{"copies that got the stored answer", a.Replayed, b.Replayed},
		{"answers “wait, it is running”", a.InFlight, b.InFlight},
		{"copies without a successful answer", a.Failed, b.Failed},
		{"orders whose copies got different answers", a.Differing, b.Differing},
		{"charges in the ledger", a.Effects, b.Effects},
	} {
		rows = append(rows, []cell{{"", x.what}, number(x.a), number(x.b)})
	}
	rows = append(rows, []cell{{"", "seconds"}, {"n", fmt.Sprintf("%.2f", a.Seconds)}, {"n", fmt.Sprintf("%.2f", b.Seconds)}})
	p.table("The same copies, without a guard and behind Semel", []cell{{}, {"n", "without a guard"}, {"n", "behind Semel"}}, rows)
}

// deliveries lists what each delivery of an order got; equal answers in a row are one line.
func (p *page) deliveries(r *Recovery, first string) {
	rows := [][]cell{words("1", first)}
	n := 2
	for _, s := range r.Seen {
		which := fmt.Sprint(n)
		if s.Times > 1 {
			which = fmt.Sprintf("%d to %d", n, n+s.Times-1)
		}
		rows = append(rows, words(which, s.String()))
		n += s.Times
	}
	p.table("Deliveries", words("delivery", "answer"), rows)
}

// crash tells of the call during which Semel was killed, and shows its record.
func (p *page) crash(r *Recovery) {
	p.element("h2", "", "kill -9 in the middle of a charge")
	p.element("p", "", "The payment service had charged, and Semel, process %d, was killed before it heard of that. It was started again on the same store, and the caller asked again.", r.KilledPID)
	p.deliveries(r, "no answer: Semel was killed")
	c := r.Record
	if c == nil {
		p.element("p", "bad", "Semel has no record of the call.")
		return
	}
	if r.Replayed && r.Attempts == 1 {
		p.element("p", "", "Nobody can see in the store whether the charge was made, so Semel did not try it again. It held the call, asked the payment service what it knows of it, and gave the answer that was lost.")
	}
	var attempts [][]cell
	for _, a := range c.Attempts {
		attempts = append(attempts, words(fmt.Sprint(a.Number), instant(a.StartedAt), instant(a.EndedAt), ending(a.Disposition), settled(a.Settled)))
	}
	p.table("Attempts", words("attempt", "began", "ended", "how", "who says so"), attempts)
	rows := [][]cell{
		words("operation", c.Operation), words("key", c.Key), words("status", c.Status.String()),
		words("attempts", fmt.Sprint(r.Attempts)), words("charges in the ledger", fmt.Sprint(r.Effects)),
		words("made", instant(c.CreatedAt)), words("kept until", instant(c.ExpiresAt)),
	}
	if c.HeldReason != "" {
		rows = append(rows, words("held, because", c.HeldReason))
	}
	if c.Verdict != nil {
		rows = append(rows, words("in one sentence", c.Verdict.Says))
	}
	p.table("The record, after the last retry", words("field", "value"), rows)
}

// instant is a time for people, or a dash.
func instant(t store.Instant) string {
	if t == 0 {
		return "-"
	}
	return t.Time().UTC().Format("2006-01-02 15:04:05.000 MST")
}

func ending(d store.Disposition) string {
	if d == 0 {
		return "not yet"
	}
	return d.String()
}

// settled says who decided how an attempt ended.
func settled(s *wire.Settled) string {
	if s == nil {
		return "nobody else than its holder"
	}
	who := s.By
	if s.Who != "" {
		who += ", " + s.Who
	}
	if s.Reason != "" {
		who += ": " + s.Reason
	}
	return who
}
