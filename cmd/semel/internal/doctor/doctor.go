// Package doctor checks an installation of Semel: its configuration, its store, the files and
// addresses that it uses, and the service that runs on it. It asks what readiness, figures,
// metrics and the check of a configuration find, and says what to do next.
package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Status says how one check ended.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, and somebody should look at it
	Failed  Status = "failed"  // it doesn't work, or is not safe
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Next is a command to type, or empty.
	Next string `json:"next,omitempty"`
}

// Report has all findings.
type Report struct {
	// Healthy is set if nothing has failed. There may be warnings.
	Healthy  bool      `json:"healthy"`
	Warnings int       `json:"warnings"`
	Failed   int       `json:"failed"`
	Findings []Finding `json:"findings"`
}

// ReportOf adds findings up.
func ReportOf(all []Finding) *Report {
	r := &Report{Findings: all}
	for i := range all {
		switch all[i].Status {
		case Warning:
			r.Warnings++
		case Failed:
			r.Failed++
		}
	}
	r.Healthy = r.Failed == 0
	return r
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	width := 0
	for i := range r.Findings {
		width = max(width, len(r.Findings[i].Check))
	}
	var b strings.Builder
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", f.Status, width, f.Check, plain(f.Detail))
		if f.Next != "" {
			fmt.Fprintf(&b, "%*s  next: %s\n", len(Warning)+2+width, "", plain(f.Next))
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %d failed\n", len(r.Findings)-r.Warnings-r.Failed, plural(r.Warnings, "warning"), r.Failed)
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plain is a text on one line, without what a terminal would obey.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}
