package query

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/store"
)

// maxDepth bounds how deep parentheses are nested.
const maxDepth = 32

// Parse parses a query. The empty one selects all records. An error is an [*Error] with
// all problems. Cursor and Limit aren't part of the text.
func Parse(text string) (store.Query, error) {
	p := parser{text: text}
	if !utf8.ValidString(text) {
		return store.Query{}, &Error{[]Problem{{1, "the query is not valid UTF-8"}}}
	}
	q := p.alternatives()
	if len(p.problems) > 0 {
		return store.Query{}, &Error{p.problems}
	}
	return q, nil
}

// Excludes reports whether an argument of a command line is a qualifier behind a minus,
// such as -state:failed, and not a flag.
func Excludes(arg string) bool {
	word, minus := strings.CutPrefix(arg, "-")
	name, _, valued := strings.Cut(word, ":")
	return minus && (valued && slices.Contains(names, name) || word == "held" || word == "unverified" || strings.HasPrefix(word, "("))
}

type parser struct {
	text     string
	at       int  // of the next byte
	depth    int  // of parentheses
	lost     bool // where they end
	problems []Problem
}

// conjunction is a part of a query in which everything must apply.
type conjunction struct {
	store.Query
	seen map[string]bool // qualifiers
	last int             // where the newest term is
}

func (p *parser) problem(at int, format string, args ...any) {
	p.problems = append(p.problems, Problem{utf8.RuneCountInString(p.text[:at]) + 1, fmt.Sprintf(format, args...)})
}

func (p *parser) skipSpace() {
	p.at = len(p.text) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

// alternatives reads up to the end of the text, or of the parentheses.
func (p *parser) alternatives() store.Query {
	var all []store.Query
	for {
		p.skipSpace()
		start := p.at
		c := conjunction{seen: map[string]bool{}}
		more := p.conjunction(&c)
		if len(c.seen) == 0 && (more || len(all) > 0) {
			p.problem(min(start, len(p.text)), "OR stands between two qualifiers")
		}
		if c.After != 0 && c.Before != 0 && c.After >= c.Before {
			p.problem(c.last, "no record is both after and before these times: the first isn't earlier than the second")
		}
		if all = append(all, c.Query); !more {
			break
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return store.Query{Any: [][]store.Query{all}}
}

// conjunction reads terms, and reports whether an OR ends them.
func (p *parser) conjunction(c *conjunction) (more bool) {
	for p.skipSpace(); p.at < len(p.text); p.skipSpace() {
		if p.depth > 0 && p.text[p.at] == ')' {
			return false
		}
		if rest, found := strings.CutPrefix(p.text[p.at:], "OR"); found && (rest == "" || unicode.IsSpace(rune(rest[0]))) {
			p.at += len("OR")
			return true
		}
		p.term(c)
	}
	return false
}

func (p *parser) term(c *conjunction) {
	c.last = p.at
	into, negative := c, p.text[p.at] == '-'
	if negative {
		p.at++
		into = &conjunction{seen: map[string]bool{}}
	}
	if strings.HasPrefix(p.text[p.at:], "(") {
		p.group(into)
	} else {
		p.qualifier(into)
	}
	if c.seen[" "] = true; negative { // no name has a space
		c.Not = append(c.Not, into.Query)
	}
}

func (p *parser) group(c *conjunction) {
	start := p.at
	if p.depth == maxDepth {
		p.problem(start, "the parentheses are nested too deep: the most is %d", maxDepth)
		p.at, p.lost = len(p.text), true
		return
	}
	p.at++
	p.depth++
	inner := p.alternatives()
	p.depth--
	if !strings.HasPrefix(p.text[p.at:], ")") {
		if !p.lost {
			p.problem(start, "the parenthesis isn't closed")
		}
		p.lost = true // those around it aren't, either
		return
	}
	p.at++
	c.require(inner)
}

func (c *conjunction) require(q store.Query) {
	switch {
	case reflect.DeepEqual(q, store.Query{}):
	case reflect.DeepEqual(q, store.Query{Any: q.Any}):
		c.Any = append(c.Any, q.Any...)
	default:
		c.Any = append(c.Any, []store.Query{q})
	}
}

// word reads up to the next white space, up to stop, or up to the end of the parentheses.
func (p *parser) word(stop rune) string {
	rest := p.text[p.at:]
	end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == stop || r == ')' && p.depth > 0 })
	if end < 0 {
		end = len(rest)
	}
	p.at += end
	return rest[:end]
}

// noStop is no character, for words that only white space ends.
const noStop = unicode.MaxRune + 1

func (p *parser) qualifier(c *conjunction) {
	start := p.at
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, "created<") || strings.HasPrefix(rest, "created>"):
		p.at += len("created<")
		if wrong := setAge(&c.Query, rest[len("created")], p.word(noStop)); wrong != "" {
			p.problem(start+len("created<"), "%s", wrong)
		}
		return
	case strings.HasPrefix(rest, `"`):
		if value, ok := p.quoted(); ok && value != "" {
			c.require(lookup.Exactly(value))
		} else if ok {
			p.problem(start, "a name of a call isn't empty")
		}
		return
	case strings.HasPrefix(rest, lookup.CallURN) || strings.HasPrefix(rest, "http://") || strings.HasPrefix(rest, "https://"):
		c.require(lookup.Named(p.word(noStop)))
		return
	}
	name := p.word(':')
	colon := len(name)
	value, given, quoted := "", strings.HasPrefix(p.text[p.at:], ":"), false
	if given {
		p.at++
		if quoted = strings.HasPrefix(p.text[p.at:], `"`); !quoted {
			value = p.word(noStop)
		} else if value, given = p.quoted(); !given {
			return
		}
	}
	prefix, cut := strings.CutSuffix(value, "*")
	if cut = cut && !quoted && set[name+"_prefix"] != nil; cut {
		name, value = name+"_prefix", prefix
	}
	put, known := set[name]
	switch {
	case name != "" && name != "created" && !known && !given:
		c.require(lookup.Named(name))
		return
	case !given && (name == "held" || name == "unverified"):
		value, given = "true", true
	}
	if wrong := c.fault(name, value, given, quoted, cut); wrong != "" {
		p.problem(start, "%s", wrong)
	} else if wrong := put(&c.Query, value); wrong != "" {
		p.problem(start+colon+1, "%s", wrong)
	}
	c.seen[name] = true
}

// fault says why a qualifier is wrong, whatever its value; cut says that an asterisk followed.
func (c *conjunction) fault(name, value string, given, quoted, cut bool) string {
	switch _, known := set[name]; {
	case name == "created":
		return "created is compared with an age: write created<1h or created>1h"
	case name == "":
		return "a value has no name before it: write key:VALUE or use another of " + strings.Join(names, ", ")
	case !known:
		return "there is no such qualifier" + suggestion(name)
	case c.seen[name] && name != "attribute" && name != "attribute_prefix":
		return name + " is given twice"
	case !given:
		return name + " has no value: write " + name + ":VALUE"
	case value == "" && name != "tenant" && !cut:
		return name + " has an empty value"
	case value == "" && !quoted && !cut:
		return name + ` has no value; the empty tenant is tenant:""`
	}
	return ""
}

// quoted reads a quoted value. If the end can't be found, it skips the rest of the text.
func (p *parser) quoted() (value string, ok bool) {
	start := p.at
	literal, err := strconv.QuotedPrefix(p.text[p.at:])
	if err != nil {
		p.problem(start, "the quoted value doesn't end, or has an unknown escape: a quote is \\\", a backslash \\\\")
		p.at = len(p.text)
		return "", false
	}
	p.at += len(literal)
	if trailing := p.word(noStop); trailing != "" {
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

func suggestion(name string) string {
	name = strings.ToLower(name)
	other := map[string]string{"op": "operation", "status": "state", "tenant_id": "tenant", "since": "after", "from": "after", "until": "before", "to": "before", "user": "principal", "id": "call", "record": "call", "reference": "call", "payload_hash": "fingerprint"}
	if meant, ok := other[name]; ok {
		return ", did you mean " + meant + "?"
	}
	return spelling.Suggest(name, names)
}
