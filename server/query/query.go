// Package query parses queries by which people select records:
//
//	operation:payments.charge state:failed after:2026-01-01 held
//
// Qualifiers are separated by white space, and all of them must apply. Put a value with
// white space in double quotes, with the escapes of a Go string: key:"order 1". An asterisk
// at the end of an attribute's value, outside of quotes, stands for any text. A quoted
// value may be empty if that means something: tenant:"" selects the records of the empty
// tenant.
package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/store"
)

// Qualifiers lists what a query may contain, for help texts.
const Qualifiers = `  tenant:NAME      of one tenant; tenant:"" is the empty one
  principal:NAME   whose keys they are
  operation:NAME   of one operation
  key:KEY          with this key
  call:NAME        of one call, named as a record, in a problem or in a log
  fingerprint:F    with this payload, as fingerprint or payload_hash show it
  attribute:N=V    whose attribute N is V; attribute:N=V* whose N begins with V
  state:STATE      processing, completed, failed (rejected, aborted, abandoned), held
  held             held records only
  after:TIME       created at that time or later
  before:TIME      created before that time
  created<1h       created less than an hour ago; created>1h longer ago

TIME is a date, 2026-01-31, which begins at midnight UTC, or a moment as in
2026-01-31T12:00:00Z.`

// Error has everything that is wrong with a query.
type Error struct {
	Problems []Problem
}

// Problem is one error in a query.
type Problem struct {
	// Column is the place, counted in characters from 1.
	Column int
	// Message says what is wrong. It never repeats a value.
	Message string
}

// Error lists all problems, each with its column.
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

// Parse parses a query. The empty one selects all records. An error is an [*Error] with
// all problems. Cursor and Limit aren't part of the text.
func Parse(text string) (store.Query, error) {
	p := parser{text: text, seen: map[string]bool{}}
	if !utf8.ValidString(text) {
		return store.Query{}, &Error{[]Problem{{1, "the query is not valid UTF-8"}}}
	}
	for p.skipSpace(); p.at < len(text); p.skipSpace() {
		p.qualifier()
	}
	if q := &p.query; q.After != 0 && q.Before != 0 && q.After >= q.Before {
		p.problem(p.last, "no record is both after and before these times: the first isn't earlier than the second")
	}
	if len(p.problems) > 0 {
		return store.Query{}, &Error{p.problems}
	}
	return p.query, nil
}

// set has a function for each qualifier, which puts its value into the query or says what
// is wrong with it.
var set = map[string]func(q *store.Query, value string) (wrong string){
	"tenant":    func(q *store.Query, v string) string { q.Tenant = &v; return "" },
	"principal": func(q *store.Query, v string) string { q.Principal = v; return "" },
	"operation": func(q *store.Query, v string) string { q.Operation = v; return "" },
	"key":       func(q *store.Query, v string) string { q.Key = v; return "" },
	"call": func(q *store.Query, v string) string {
		named, ok := Name(v)
		switch {
		case !ok:
			return "this isn't the name of a call: use the id of a record or an execution, a problem's reference, instance or status URL, or record from a log line"
		case q.Tenant != nil || q.Principal != "" || q.Operation != "" || q.Key != "" || q.Digest != "":
			return "call already selects tenant, principal, operation and key: leave those out"
		}
		q.Tenant, q.Principal, q.Operation, q.Key, q.Digest = named.Tenant, named.Principal, named.Operation, named.Key, named.Digest
		return ""
	},
	"digest": func(q *store.Query, v string) string {
		if !isDigest(v) {
			return "a digest is up to 64 hexadecimal digits in small letters"
		}
		q.Digest = v
		return ""
	},
	"fingerprint": func(q *store.Query, v string) string {
		if q.Fingerprint.UnmarshalText([]byte(v)) != nil || q.Fingerprint.IsZero() {
			return "a fingerprint is a number, a colon and 64 hexadecimal digits"
		}
		return ""
	},
	"attribute": func(q *store.Query, v string) string { return setAttribute(&q.Attributes, q, v) },
	// attribute_prefix is what clients write for attribute:N=V* whatever V has.
	"attribute_prefix": func(q *store.Query, v string) string { return setAttribute(&q.AttributePrefixes, q, v) },
	"state": func(q *store.Query, v string) string {
		if v == "held" { // as lists show it
			q.Held = true
			return ""
		}
		if q.State.UnmarshalText([]byte(v)) != nil {
			return "the states are processing, completed, failed and held; what lists show as rejected, aborted or abandoned is failed"
		}
		return ""
	},
	"held": func(q *store.Query, v string) string {
		if v != "true" {
			return "held takes no value; you can't select records that aren't held"
		}
		q.Held = true
		return ""
	},
	"after":  func(q *store.Query, v string) string { return setTime(&q.After, v) },
	"before": func(q *store.Query, v string) string { return setTime(&q.Before, v) },
}

// setAttribute adds NAME=VALUE to one of the query's attributes.
func setAttribute(list *store.Attributes, q *store.Query, v string) string {
	name, value, ok := strings.Cut(v, "=")
	_, exact := q.Attributes[name]
	_, prefix := q.AttributePrefixes[name]
	if !ok || name == "" || exact || prefix {
		return "an attribute is NAME=VALUE, each name once"
	}
	if *list == nil {
		*list = store.Attributes{}
	}
	(*list)[name] = value
	return ""
}

// setAge bounds the time of creation by a duration before now: created<1h.
func setAge(q *store.Query, op byte, value string) string {
	age, err := time.ParseDuration(value)
	if days, found := strings.CutSuffix(value, "d"); found {
		n, derr := strconv.ParseUint(days, 10, 16)
		age, err = time.Duration(n)*24*time.Hour, derr
	}
	bound := &q.After
	if op == '>' {
		bound = &q.Before
	}
	switch {
	case err != nil || age <= 0:
		return "an age is a duration such as 90s, 15m, 1h or 7d"
	case *bound != 0:
		return "this bound is given twice"
	}
	*bound = store.InstantOf(time.Now().Add(-age))
	return ""
}

// names are the qualifiers, in the order in which errors list them.
var names = []string{"operation", "state", "key", "call", "principal", "tenant", "fingerprint", "attribute", "before", "after", "created", "held"}

func setTime(at *store.Instant, value string) string {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		t, err := time.Parse(layout, value)
		if err != nil {
			continue
		}
		if t.Equal(time.Unix(0, 0)) {
			t = time.Unix(0, 1) // the zero Instant means none; no record was created then
		}
		*at = store.InstantOf(t)
		if !at.Time().Equal(t) {
			return "the time is too far away: the years are 1678 to 2261"
		}
		return ""
	}
	return "a time is a date such as 2026-01-31 or a moment such as 2026-01-31T12:00:00Z"
}

// parser reads the text from left to right.
type parser struct {
	text     string
	at       int // of the next byte
	last     int // of the newest qualifier
	query    store.Query
	seen     map[string]bool
	problems []Problem
}

func (p *parser) problem(at int, format string, args ...any) {
	p.problems = append(p.problems, Problem{utf8.RuneCountInString(p.text[:at]) + 1, fmt.Sprintf(format, args...)})
}

func (p *parser) skipSpace() {
	p.at = len(p.text) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

// word reads up to the next white space, or up to stop.
func (p *parser) word(stop rune) string {
	rest := p.text[p.at:]
	end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == stop })
	if end < 0 {
		end = len(rest)
	}
	p.at += end
	return rest[:end]
}

// qualifier reads one qualifier.
func (p *parser) qualifier() {
	start := p.at
	p.last = start
	if rest := p.text[p.at:]; strings.HasPrefix(rest, "created<") || strings.HasPrefix(rest, "created>") {
		p.at += len("created<")
		if wrong := setAge(&p.query, rest[len("created")], p.word(unicode.MaxRune+1)); wrong != "" {
			p.problem(start+len("created<"), "%s", wrong)
		}
		return
	}
	name := p.word(':')
	colon := len(name)
	value, given, quoted := "", strings.HasPrefix(p.text[p.at:], ":"), false
	if given {
		p.at++
		if quoted = strings.HasPrefix(p.text[p.at:], `"`); !quoted {
			value = p.word(unicode.MaxRune + 1)
		} else if value, given = p.quoted(); !given {
			return
		}
	}
	if prefix, cut := strings.CutSuffix(value, "*"); name == "attribute" && cut && !quoted {
		name, value = "attribute_prefix", prefix
	}
	put, known := set[name]
	switch {
	case name == "created":
		p.problem(start, "created is compared with an age: write created<1h or created>1h")
	case name == "":
		p.problem(start, "a value has no name before it: write key:VALUE or use another of %s", strings.Join(names, ", "))
	case !known && !given:
		p.problem(start, "a word has no value: write key:VALUE to select a key, or use another of %s", strings.Join(names, ", "))
	case !known:
		p.problem(start, "there is no such qualifier%s", suggestion(name))
	case p.seen[name] && name != "attribute" && name != "attribute_prefix":
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
			p.problem(start+colon+1, "%s", wrong)
		}
	}
	p.seen[name] = true
}

// quoted reads a quoted value. If the end can't be found, it skips the rest of the text.
func (p *parser) quoted() (value string, ok bool) {
	start := p.at
	literal, err := strconv.QuotedPrefix(p.text[p.at:])
	if err != nil {
		p.problem(start, "the quoted value doesn't end, or has an escape that Go strings don't have")
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
		p.problem(start, "the quoted value isn't valid UTF-8, or has a NUL byte")
		return "", false
	}
	return value, true
}

// suggestion guesses what an unknown name means, or lists all names.
func suggestion(name string) string {
	name = strings.ToLower(name)
	other := map[string]string{"op": "operation", "status": "state", "tenant_id": "tenant", "since": "after", "from": "after", "until": "before", "to": "before", "user": "principal", "id": "call", "record": "call", "reference": "call", "payload_hash": "fingerprint"}
	if meant, ok := other[name]; ok {
		return ", did you mean " + meant + "?"
	}
	if meant := spelling.Nearest(name, names); meant != "" {
		return ", did you mean " + meant + "?"
	}
	return ": there are " + strings.Join(names, ", ")
}
