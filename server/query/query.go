// Package query reads the words by which people select records:
//
//	operation:payments.charge state:failed after:2026-01-01 held
//
// Qualifiers are separated by white space and all of them must apply. A value
// that has white space in it is put in double quotes, with the escapes of a Go
// string: key:"order 1". A quoted value may be empty where empty means something:
// tenant:"" selects the records of the empty tenant.
package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel"
)

// Qualifiers is what a query may consist of, for help texts.
const Qualifiers = `  tenant:NAME      of one tenant; tenant:"" is the empty one
  principal:NAME   whose keys they are
  operation:NAME   of one operation
  key:KEY          with this key
  state:STATE      processing, completed or failed
  held             held records only
  after:TIME       created at that time or later
  before:TIME      created before that time
TIME is a date, 2026-01-31, which begins at midnight UTC, or a moment as in
2026-01-31T12:00:00Z.`

// Error is all that is wrong with a query.
type Error struct {
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// Column is where, counted in characters from 1.
	Column int
	// Message says what, and never repeats a value.
	Message string
}

// Error is all problems, each with its column.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "column %d: %s", p.Column, p.Message)
	}
	return b.String()
}

// Parse reads a query. The empty one selects all records. An error is an [*Error]
// and has all problems at once. Cursor and Limit are not part of the words.
func Parse(text string) (semel.Query, error) {
	p := parser{text: text, seen: map[string]bool{}}
	if !utf8.ValidString(text) {
		return semel.Query{}, &Error{[]Problem{{1, "the query is not valid UTF-8"}}}
	}
	for p.skipSpace(); p.at < len(text); p.skipSpace() {
		p.qualifier()
	}
	if q := &p.query; q.After != 0 && q.Before != 0 && q.After >= q.Before {
		p.problem(p.last, "nothing is both after and before: the first is not earlier than the second")
	}
	if len(p.problems) > 0 {
		return semel.Query{}, &Error{p.problems}
	}
	return p.query, nil
}

// set puts a value into the query, and says what is wrong with it.
var set = map[string]func(q *semel.Query, value string) (wrong string){
	"tenant":    func(q *semel.Query, v string) string { q.Tenant = &v; return "" },
	"principal": func(q *semel.Query, v string) string { q.Principal = v; return "" },
	"operation": func(q *semel.Query, v string) string { q.Operation = v; return "" },
	"key":       func(q *semel.Query, v string) string { q.Key = v; return "" },
	"state": func(q *semel.Query, v string) string {
		if q.State.UnmarshalText([]byte(v)) != nil {
			return "the states are processing, completed and failed"
		}
		return ""
	},
	"held": func(q *semel.Query, v string) string {
		if v != "true" {
			return "held takes no value; what is not held can't be selected"
		}
		q.Held = true
		return ""
	},
	"after":  func(q *semel.Query, v string) string { return setTime(&q.After, v) },
	"before": func(q *semel.Query, v string) string { return setTime(&q.Before, v) },
}

// names are those of the qualifiers, in the order in which they are told.
var names = []string{"operation", "state", "key", "principal", "tenant", "before", "after", "held"}

func setTime(at *semel.Instant, value string) string {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		t, err := time.Parse(layout, value)
		if err != nil {
			continue
		}
		if t.Equal(time.Unix(0, 0)) {
			t = time.Unix(0, 1) // no record was created at the moment that stands for none
		}
		*at = semel.InstantOf(t)
		if !at.Time().Equal(t) {
			return "the time is too far away: the years are 1678 to 2261"
		}
		return ""
	}
	return "a time is a date as 2026-01-31 or a moment as 2026-01-31T12:00:00Z"
}

// parser goes over the text once.
type parser struct {
	text     string
	at       int // of the next byte
	last     int // of the newest qualifier
	query    semel.Query
	seen     map[string]bool
	problems []Problem
}

func (p *parser) problem(at int, format string, args ...any) {
	p.problems = append(p.problems, Problem{utf8.RuneCountInString(p.text[:at]) + 1, fmt.Sprintf(format, args...)})
}

func (p *parser) skipSpace() {
	p.at = len(p.text) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

// word takes what is left up to the next white space, or up to stop.
func (p *parser) word(stop rune) string {
	rest := p.text[p.at:]
	end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == stop })
	if end < 0 {
		end = len(rest)
	}
	p.at += end
	return rest[:end]
}

// qualifier takes one qualifier.
func (p *parser) qualifier() {
	start := p.at
	p.last = start
	name := p.word(':')
	value, given, quoted := "", strings.HasPrefix(p.text[p.at:], ":"), false
	if given {
		p.at++
		if quoted = strings.HasPrefix(p.text[p.at:], `"`); !quoted {
			value = p.word(unicode.MaxRune + 1)
		} else if value, given = p.quoted(); !given {
			return
		}
	}
	put, known := set[name]
	switch {
	case name == "":
		p.problem(start, "a value has no name before it: write key:VALUE or another of %s", strings.Join(names, ", "))
	case !known && !given:
		p.problem(start, "a word stands alone: write key:VALUE to select a key, or another of %s", strings.Join(names, ", "))
	case !known:
		p.problem(start, "there is no such qualifier%s", suggestion(name))
	case p.seen[name]:
		p.problem(start, "%s is given twice", name)
	case name == "held" && !given:
		p.query.Held = true
	case !given:
		p.problem(start, "%s has no value: write %s:VALUE", name, name)
	case value == "" && name != "tenant":
		p.problem(start, "%s has an empty value", name)
	case value == "" && !quoted:
		p.problem(start, `%s has no value; the empty tenant is tenant:""`, name)
	default:
		if wrong := put(&p.query, value); wrong != "" {
			p.problem(start+len(name)+1, "%s", wrong)
		}
	}
	p.seen[name] = true
}

// quoted takes a quoted value. Where its end can't be found the rest of the text
// is given up.
func (p *parser) quoted() (value string, ok bool) {
	start := p.at
	literal, err := strconv.QuotedPrefix(p.text[p.at:])
	if err != nil {
		p.problem(start, "the quoted value does not end, or has an escape that Go strings do not have")
		p.at = len(p.text)
		return "", false
	}
	p.at += len(literal)
	if trailing := p.word(unicode.MaxRune + 1); trailing != "" {
		p.problem(p.at-len(trailing), "there is no space after the quoted value")
		return "", false
	}
	value, err = strconv.Unquote(literal)
	if err != nil || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		p.problem(start, "the quoted value is not UTF-8 without NUL")
		return "", false
	}
	return value, true
}

// suggestion tells what may have been meant by an unknown name, or all there is.
func suggestion(name string) string {
	name = strings.ToLower(name)
	other := map[string]string{"op": "operation", "status": "state", "tenant_id": "tenant", "since": "after", "from": "after", "until": "before", "to": "before", "user": "principal", "id": "key"}
	if meant, ok := other[name]; ok {
		return ", did you mean " + meant + "?"
	}
	if i := slices.IndexFunc(names, func(n string) bool { return near(n, name) }); i >= 0 {
		return ", did you mean " + names[i] + "?"
	}
	return ": there are " + strings.Join(names, ", ")
}

// near reports whether one change makes one word of the other: a letter more, a
// letter less, another letter, or two that changed places.
func near(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) {
		return true
	}
	switch ra, rb := a[i:], b[i:]; len(a) - len(b) {
	case 0:
		return ra[1:] == rb[1:] || len(ra) > 1 && ra[0] == rb[1] && ra[1] == rb[0] && ra[2:] == rb[2:]
	case 1:
		return ra[1:] == rb
	}
	return false
}
