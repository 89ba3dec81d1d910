package verdict

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/store"
)

// Together judges all calls that people know by one name, oldest first. Calls of several
// operations are counted apart: a cart and a payment with one number are no double payment. more
// says that there may be further calls.
func Together(name string, calls []Facts, more bool) string {
	several := ""
	if more {
		several = " at least"
	}
	if len(calls) == 0 {
		return name + ": no call"
	}
	type group struct {
		Counts
		name  string
		calls []*Facts
	}
	var groups []*group
	at := map[string]*group{}
	for i := range calls {
		f := &calls[i]
		of := f.Record.ID.Tenant + "\x00" + f.Record.ID.Operation
		if at[of] == nil {
			at[of] = &group{name: f.Record.ID.Operation}
			groups = append(groups, at[of])
		}
		at[of].add(Of(f).Counts)
		at[of].calls = append(at[of].calls, f)
	}
	var parts []string
	for _, g := range groups {
		part := howDone(g.Counts) + ": " + list(g.calls) + sameness(g.calls)
		if len(groups) > 1 {
			part = g.name + " " + part
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s:%s %d %s, %s", name, several, len(calls), plural(len(calls), "call", "calls"), strings.Join(parts, "; "))
}

// list names calls, each with the time at which its newest attempt began, and how it stands if it
// wasn't simply executed.
func list(calls []*Facts) string {
	var parts []string
	for _, f := range calls {
		at, format := f.Record.StartedAt.Time().UTC(), "2006-01-02 15:04:05"
		if at.Format("2006-01-02") == f.Now.Time().UTC().Format("2006-01-02") {
			format = "15:04:05"
		}
		part := f.Record.ID.Key + " at " + at.Format(format)
		if state := Of(f).State; state != Executed {
			part += " (" + strings.ReplaceAll(string(state), "_", " ") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// sameness compares the payloads of several calls, as far as their fingerprints tell.
func sameness(calls []*Facts) string {
	if len(calls) < 2 {
		return ""
	}
	var first store.Fingerprint
	for i, f := range calls {
		fp := f.Record.Fingerprint
		switch {
		case fp.IsZero(), i > 0 && fp.Scheme() != first.Scheme():
			return "" // nothing was compared, or not in the same way
		case i == 0:
			first = fp
		case fp != first:
			return "; their payloads differ"
		}
	}
	return "; all with the same payload"
}
