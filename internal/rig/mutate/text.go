package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A rule replaces a match of a pattern in Lua or SQL.
type rule struct {
	pattern *regexp.Regexp
	with    string
}

// rules makes one of each pair; a pattern has no groups.
func rules(pairs ...string) []rule {
	var all []rule
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, rule{regexp.MustCompile(pairs[i]), pairs[i+1]})
	}
	return all
}

var (
	lua      = regexp.MustCompile(`\bredis\.p?call\b|\bKEYS\[|\bARGV\[`)
	luaRules = rules(
		`==`, `~=`,
		`~=`, `==`,
		` < `, ` <= `,
		` <= `, ` < `,
		` > `, ` >= `,
		` >= `, ` > `,
		` and `, ` or `,
		` or `, ` and `,
		`\bnot `, ``,
		` \+ `, ` - `,
		`'NX', `, ``,
		`'GT', `, ``,
		`\bpcall\(`, `call(`,
	)
	// luaStatement is a line that can be dropped without a syntax error.
	luaStatement = regexp.MustCompile(`^(p?call\(|redis\.p?call\(|if .* end$|[\w.]+(\[[^=]*\])?(, \w+)* = )`)
	luaNumber    = regexp.MustCompile(`\b\d+\b`)

	sql      = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|ON CONFLICT|RETURNING|VALUES|ORDER BY|AND|FOR UPDATE)\b`)
	sqlRules = rules(
		` = `, ` <> `,
		` <> `, ` = `,
		` < `, ` <= `,
		` <= `, ` < `,
		` > `, ` >= `,
		` >= `, ` > `,
		`\bAND\b`, `OR`,
		`\bOR\b`, `AND`,
		`\bIS NULL\b`, `IS NOT NULL`,
		`\bIS NOT NULL\b`, `IS NULL`,
		`\bNOT EXISTS\b`, `EXISTS`,
		` FOR UPDATE\b`, ``,
		` DESC\b`, ``,
		`\btrue\b`, `false`,
		`\bfalse\b`, `true`,
		`\bleast\(`, `greatest(`,
		`\bgreatest\(`, `least(`,
	)
)

// text finds the mutations of a literal, from start to end without its quotes, if it is
// Lua or SQL.
func (l *list) text(fn string, start, end int) {
	s := string(l.src[start:end])
	switch {
	case lua.MatchString(s):
		l.rewrite(fn, start, s, luaRules)
		l.lines(fn, start, s)
	case sql.MatchString(s):
		l.rewrite(fn, start, s, sqlRules)
	}
}

func (l *list) rewrite(fn string, start int, s string, rules []rule) {
	for _, r := range rules {
		for _, at := range r.pattern.FindAllStringIndex(s, -1) {
			old := strings.TrimSpace(s[at[0]:at[1]])
			show := old + " becomes " + strings.TrimSpace(r.with)
			if r.with == "" {
				show = "drop " + old
			}
			l.replace(fn, start+at[0], start+at[1], r.with, show+" in "+brief(lineAround(s, at[0])))
		}
	}
}

// lines drops lines of Lua, and changes its numbers by one.
func (l *list) lines(fn string, start int, s string) {
	at := 0
	for line := range strings.Lines(s) {
		text := strings.TrimSpace(line)
		if luaStatement.MatchString(text) && strings.HasSuffix(line, "\n") {
			from := start + at + strings.Index(line, text)
			l.replace(fn, from, from+len(text), "", "drop the line "+replaced)
		}
		for _, n := range luaNumber.FindAllStringIndex(line, -1) {
			if !strings.HasPrefix(text, "--") {
				from := start + at + n[0]
				more, _ := strconv.Atoi(line[n[0]:n[1]])
				more++
				l.replace(fn, from, from+n[1]-n[0], strconv.Itoa(more), fmt.Sprintf("%s becomes %d in %s", replaced, more, brief(text)))
			}
		}
		at += len(line)
	}
}

// lineAround is the line with the byte at i.
func lineAround(s string, i int) string {
	from := strings.LastIndexByte(s[:i], '\n') + 1
	line, _, _ := strings.Cut(s[from:], "\n")
	return line
}
