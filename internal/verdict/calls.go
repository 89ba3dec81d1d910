package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// Together judges all calls that people know by one name, oldest first. It counts calls of
// several operations separately: a cart and a payment with the same number aren't a double
// payment. more says that there may be further calls.
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
	at, known := map[string]*group{}, true
	calls = slices.Clone(calls) // for their verdicts
	for i := range calls {
		f := &calls[i]
		f.Said = new(Of(f))
		known = known && f.Said.Known
		of := f.Record.ID.Tenant + "\x00" + f.Record.ID.Operation
		if at[of] == nil {
			at[of] = &group{name: f.Record.ID.Operation}
			groups = append(groups, at[of])
		}
		at[of].add(f.Said.Counts)
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
	text := fmt.Sprintf("%s:%s %d %s, %s", name, several, len(calls), plural(len(calls), "call", "calls"), strings.Join(parts, "; "))
	if !known {
		text += unknown("earlier records were")
	}
	return text
}

// list names judged calls, each with the time at which its newest attempt began, and its state if it
// wasn't simply executed.
func list(calls []*Facts) string {
	var parts []string
	for _, f := range calls {
		at, format := f.Record.StartedAt.Time().UTC(), "2006-01-02 15:04:05"
		if at.Format("2006-01-02") == f.Now.Time().UTC().Format("2006-01-02") {
			format = "15:04:05"
		}
		part := f.Record.ID.Key + " at " + at.Format(format)
		v := f.Said
		var more []string
		if v.State != Executed {
			more = append(more, v.State.Words())
		}
		if before := v.Begun - counted(f).Begun; before > 0 {
			more = append(more, "and begun "+times(before)+" before its record was made anew")
		}
		if len(more) > 0 {
			part += " (" + strings.Join(more, ", ") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// sameness says whether the payloads of several calls differ, by their fingerprints, which
// leave out where the key came from, and where they differ, by the payloads themselves.
func sameness(calls []*Facts) string {
	if len(calls) < 2 {
		return ""
	}
	first, differ := calls[0].Record.Fingerprint, false
	for _, f := range calls {
		fp := f.Record.Fingerprint
		if fp.IsZero() || fp.Scheme() != first.Scheme() {
			return "; their payloads weren't compared"
		}
		differ = differ || fp != first
	}
	where, compared := paths(calls)
	switch {
	case differ && len(where) > 0:
		return "; their payloads differ in " + strings.Join(where, ", ")
	case differ && compared:
		return "; their payloads differ"
	case differ:
		return "; their payloads differ, and where can't be seen here"
	case len(where) > 0:
		return "; all with the same payload, but for " + strings.Join(where, ", ")
	}
	return "; all with the same payload"
}
