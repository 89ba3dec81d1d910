package config

import (
	"reflect"
	"slices"
	"strings"
)

// Strays says of variables of the environment, as os.Environ lists them, which ones
// look like settings and are none: a slip in the name of one that there is, or in a
// section that there is. Other names that begin with SEMEL_ are left to whoever sets
// them, such as Kubernetes for a service that is called semel.
func Strays(environ []string) []string {
	var known, sections []string
	eachLeaf("", reflect.ValueOf(new(Config)).Elem(), func(path string, _ reflect.Value, _ field) {
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
		if !strings.HasPrefix(name, "SEMEL_") || name == "SEMEL_TOKEN" || slices.Contains(known, name) {
			continue
		}
		near := slices.ContainsFunc(known, func(k string) bool { return editDistance([]rune(name), []rune(k)) <= 2 })
		if !near && !slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		stray := name + " sets nothing"
		if hint := didYouMean(name, known); hint != "" {
			stray += ", " + hint
		}
		strays = append(strays, stray)
	}
	slices.Sort(strays)
	return strays
}
