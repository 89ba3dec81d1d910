package tail

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/store"
)

// Decisions are the values of the qualifier decision, for help and completion.
var Decisions = strings.Fields(strings.Trim(fmt.Sprint(semel.Decisions()), "[]"))

// Filter selects events by the qualifiers of records, as far as they apply to events, and by
// decision:D. The zero value selects all.
type Filter struct {
	query      store.Query
	either     []semel.Decision // nil: all
	not        []semel.Decision
	everything bool
}

var errNotInEvents = errors.New("events have no attributes, fingerprints and times of creation: semel records list selects by them")

// ParseFilter reads a filter. All of its qualifiers must apply; several decision:D select
// events with one of them. An error names the mistake.
func ParseFilter(text string) (Filter, error) {
	f := Filter{}
	var rest []string
	for _, word := range words(text) {
		name, value, _ := strings.Cut(strings.TrimLeft(word, "-("), ":")
		switch {
		case name == "decision":
			if !slices.Contains(Decisions, value) {
				return f, fmt.Errorf("there is no decision %q%s", value, spelling.Suggest(value, Decisions))
			}
			switch {
			case strings.HasPrefix(word, "-decision:"):
				f.not = append(f.not, semel.Decision(value))
			case strings.HasPrefix(word, "decision:"):
				f.either = append(f.either, semel.Decision(value))
			default:
				return f, errors.New("decision: can't stand in parentheses")
			}
			continue
		case slices.Contains([]string{"attribute", "attribute_prefix", "fingerprint", "after", "before"}, name), strings.HasPrefix(name, "created<"), strings.HasPrefix(name, "created>"):
			return f, errNotInEvents
		}
		rest = append(rest, word)
	}
	if len(f.either)+len(f.not) > 0 && slices.Contains(rest, "OR") {
		return f, errors.New("decision: and OR exclude each other: give decision: several times")
	}
	q, err := query.Parse(strings.Join(rest, " "))
	f.query, f.everything = q, len(rest) == 0
	return f, err
}

// words splits a query at white space outside of quotes.
func words(text string) (all []string) {
	quoted, escaped := false, false
	word := strings.Builder{}
	for _, r := range text {
		if unicode.IsSpace(r) && !quoted {
			if word.Len() > 0 {
				all = append(all, word.String())
				word.Reset()
			}
			continue
		}
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = quoted
		case r == '"':
			quoted = !quoted
		}
		word.WriteRune(r)
	}
	if word.Len() > 0 {
		all = append(all, word.String())
	}
	return all
}

// Matches reports whether the filter selects an event. A gap is never left out.
func (f *Filter) Matches(e *Event) bool {
	if e.Kind == "gap" {
		return true
	}
	if len(f.either) > 0 && !slices.Contains(f.either, e.Decision) || slices.Contains(f.not, e.Decision) {
		return false
	}
	if f.everything {
		return true
	}
	return e.Record != "" && f.query.Matches(&store.Record{
		ID: e.ID, State: e.State, Disposition: e.Disposition, Held: e.Held || e.Decision == semel.Held,
	})
}
