package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

var (
	reference    = regexp.MustCompile(`(?s)\$\$|\$\{([^}]*)(\}?)`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces ${NAME} and ${NAME:-text} by variables, and $$ by $. Any other $ stays.
// It reports whether there was a variable.
func expand(text string, env func(string) (string, bool)) (out string, used bool, err *strictyaml.ValueError) {
	out = reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" || err != nil {
			return "$"
		}
		parts := reference.FindStringSubmatch(found)
		name, def, hasDefault := strings.Cut(parts[1], ":-")
		value, set := env(name)
		switch {
		case parts[2] == "":
			err = &strictyaml.ValueError{Message: "${ has no closing brace", Hint: "write ${NAME}, or $${ for the characters themselves"}
		case !variableName.MatchString(name):
			err = &strictyaml.ValueError{Message: fmt.Sprintf("${%s} does not name a variable", parts[1]), Hint: "write ${NAME} or ${NAME:-default}"}
		case value != "" || set && !hasDefault:
			def = value
		case !hasDefault:
			err = &strictyaml.ValueError{Message: fmt.Sprintf("the variable %s is not set", name), Hint: fmt.Sprintf("set it, or write ${%s:-default}", name)}
		}
		used = true
		return def
	})
	if err != nil {
		return "", used, err
	}
	return out, used, nil
}
