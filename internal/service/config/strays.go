package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/internal/strictyaml"
)

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
