package config

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// expand replaces ${NAME} and ${NAME:-text} by variables, and $$ by $. Any other $ stays.
// It reports whether there was a variable.
func expand(text string, env func(string) (string, bool)) (out string, used bool, err *strictyaml.ValueError) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "$")
		b.WriteString(before)
		if !ok {
			return b.String(), used, nil
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			text = rest[1:]
			continue
		case !strings.HasPrefix(rest, "{"):
			b.WriteByte('$')
			text = rest
			continue
		}
		inner, after, ok := strings.Cut(rest[1:], "}")
		if !ok {
			return "", used, &strictyaml.ValueError{Message: "${ has no closing brace", Hint: "write ${NAME}, or $${ for the characters themselves"}
		}
		text = after
		name, def, hasDefault := strings.Cut(inner, ":-")
		if !variableName(name) {
			return "", used, &strictyaml.ValueError{Message: fmt.Sprintf("${%s} does not name a variable", inner), Hint: "write ${NAME} or ${NAME:-default}"}
		}
		value, set := env(name)
		switch {
		case value != "" || set && !hasDefault:
			b.WriteString(value)
		case hasDefault:
			b.WriteString(def)
		default:
			return "", used, &strictyaml.ValueError{Message: fmt.Sprintf("the variable %s is not set", name), Hint: fmt.Sprintf("set it, or write ${%s:-default}", name)}
		}
		used = true
	}
}

func variableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
