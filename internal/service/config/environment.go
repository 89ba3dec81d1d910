package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/internal/strictyaml"
)

var (
	reference    = regexp.MustCompile(`(?s)\$\$|\$\{([^}]*)(\}?)`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces ${NAME} and ${NAME:-text} by variables, if there are any, and $$ by $.
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

// Strays finds environment variables, as listed by os.Environ, that look like settings but
// aren't: misspelt settings, and unknown names in existing sections. It ignores other names
// that begin with SEMEL_, as Kubernetes sets for a service called semel.
func Strays(environ []string) []string {
	var known, sections []string
	strictyaml.EachLeaf("", reflect.ValueOf(new(Config)).Elem(), func(path string, _ reflect.Value, _ strictyaml.Field) {
		if name := EnvName(path); name != "" {
			known = append(known, name)
		}
		if section, _, ok := strings.Cut(path, "."); ok && !strings.Contains(section, "[") {
			sections = append(sections, EnvName(section)+"_")
		}
	})
	var strays []string
	for _, text := range environ {
		name, _, _ := strings.Cut(text, "=")
		if !strings.HasPrefix(name, "SEMEL_") || name == "SEMEL_TOKEN" || name == "SEMEL_URL" || name == "SEMEL_CONTEXT" || slices.Contains(known, name) {
			continue
		}
		near := gone(name) != "" || slices.ContainsFunc(known, func(k string) bool { return spelling.Distance(name, k) <= 2 })
		if !near && !slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		stray := name + " sets nothing"
		if hint := cmp.Or(gone(name), strictyaml.DidYouMean(name, known)); hint != "" {
			stray += ", " + hint
		}
		strays = append(strays, stray)
	}
	slices.Sort(strays)
	return strays
}

// gone is what to do about the variable of a setting that an earlier version had.
func gone(variable string) string {
	for path, hint := range renamed {
		if EnvName(path) == variable {
			return hint
		}
	}
	return ""
}

// EnvName is the environment variable that sets a path; empty for a path in a list.
func EnvName(path string) string {
	if strings.ContainsAny(path, "[]") {
		return ""
	}
	return "SEMEL_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// renamed has what to write for settings of earlier versions, by path, or by name in a list.
var renamed = map[string]string{
	"limits.requests":  "remove it: limits.connections bounds the requests at once, too",
	"limits.streams":   "remove it: a connection of HTTP/2 has up to 100 requests at once",
	"log.deliveries":   "remove it, or write level: warn in place of off and debug",
	"purge.per_second": "remove it: up to 1000 records are removed a second",
	"not_executed":     "write answers: {not_executed: [...]}",
	"dashboard":        "remove it: its only setting was lab, and that screen is gone; semel demo shows that one of many copies runs",
}
