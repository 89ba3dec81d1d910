package cli

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/cmd/semel/internal/demo"
)

// demoPage is what a page says: its heading, and the rows of its tables by their first cell.
type demoPage struct {
	heading, style string
	rows           map[string][][]string
}

// readDemoPage reads a page as XML, so every element must be closed, and checks that nothing in it
// could load or run anything.
func readDemoPage(t *testing.T, text string) demoPage {
	t.Helper()
	p := demoPage{rows: map[string][][]string{}}
	d := xml.NewDecoder(strings.NewReader(text))
	var row []string
	var now strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v\n%s", err, text)
		}
		switch x := token.(type) {
		case xml.StartElement:
			now.Reset()
			for _, a := range x.Attr {
				if !slices.Contains([]string{"lang", "charset", "http-equiv", "name", "content", "class"}, a.Name.Local) || strings.Contains(a.Value, "//") {
					t.Errorf("<%s> has %s=%q", x.Name.Local, a.Name.Local, a.Value)
				}
			}
			if slices.Contains([]string{"script", "link", "img", "iframe", "a", "base", "form"}, x.Name.Local) {
				t.Errorf("it has a <%s>", x.Name.Local)
			}
		case xml.CharData:
			now.Write(x)
		case xml.EndElement:
			switch x.Name.Local {
			case "h1":
				p.heading = now.String()
			case "style":
				p.style = now.String()
			case "td", "th":
				row = append(row, now.String())
			case "tr":
				p.rows[row[0]] = append(p.rows[row[0]], row[1:])
				row = nil
			}
		}
	}
}

// wantDemoPage compares the page with the JSON of the same run.
func wantDemoPage(t *testing.T, file string, r *demo.Report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := readDemoPage(t, string(text))
	if want := fmt.Sprintf("%d requests for 20 orders: %d charges without a guard, %d behind Semel.", r.Control.Sent, r.Control.Effects, r.Protected.Effects); p.heading != want {
		t.Errorf("heading = %q", p.heading)
	}
	if strings.Contains(p.style, "url(") || strings.Contains(p.style, "@import") || !strings.Contains(p.style, "prefers-color-scheme: dark") {
		t.Errorf("style = %s", p.style)
	}
	rec := r.Crash.Record
	if rec == nil || len(rec.Attempts) != 1 || rec.Attempts[0].Settled == nil || rec.Verdict == nil {
		t.Fatalf("record = %+v", rec)
	}
	row := func(name string, want ...any) {
		t.Helper()
		for _, got := range p.rows[name] {
			if slices.Equal(got, texts(want)) {
				return
			}
		}
		t.Errorf("%q has %q, not %v", name, p.rows[name], want)
	}
	a, b := &r.Control, &r.Protected
	row("without a guard", a.Sent, a.Orders, a.Effects, "a charge each")
	row("behind Semel", b.Sent, b.Orders, b.Effects, fmt.Sprint(b.Replayed, " replays"))
	row("copies sent", a.Sent, b.Sent)
	row("requests, with those of copies that had to wait", a.Requests, b.Requests)
	row("copies that executed", a.Executed, b.Executed)
	row("copies that got the stored answer", a.Replayed, b.Replayed)
	row("answers “wait, it is running”", a.InFlight, b.InFlight)
	row("charges in the ledger", a.Effects, b.Effects)
	row("charges in the ledger", r.Crash.Effects)
	row("attempts", r.Crash.Attempts)
	row("key", rec.Key)
	row("in one sentence", rec.Verdict.Says)
	n := 2
	for _, s := range r.Crash.Seen {
		name := fmt.Sprint(n)
		if s.Times > 1 {
			name = fmt.Sprintf("%d to %d", n, n+s.Times-1)
		}
		row(name, s.String())
		n += s.Times
	}
	if n-1 != r.Crash.Sent {
		t.Errorf("the page has %d deliveries of %d", n-1, r.Crash.Sent)
	}
	row("1", "no answer: Semel was killed")
	if !strings.Contains(string(text), fmt.Sprintf("process %d,", r.Crash.KilledPID)) || !strings.Contains(string(text), fmt.Sprintf("--seed %d ", r.Seed)) {
		t.Error("the page lacks the process or the seed")
	}
	for _, got := range p.rows["1"] {
		if len(got) == 4 && got[2] == rec.Attempts[0].Disposition.String() && strings.Contains(got[3], rec.Attempts[0].Settled.Reason) {
			return
		}
	}
	t.Errorf("the attempt %+v is not among %q", rec.Attempts[0], p.rows["1"])
}

func texts(all []any) []string {
	var out []string
	for _, v := range all {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
