package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/service/auth"
)

// ReadArguments reads the schema of a version's arguments; nil where there is none.
func (fn *ForrstFunction) ReadArguments(version string) (json.RawMessage, error) {
	for _, wanted := range []string{version, ""} {
		if i := slices.IndexFunc(fn.Arguments, func(a ForrstArguments) bool { return a.Version == wanted }); i >= 0 {
			return auth.ReadFile(fn.Arguments[i].File, maxFile)
		}
	}
	return nil, nil
}

func (v *validator) forrstArguments(at string, fn *ForrstFunction) {
	first := map[string]int{}
	for i, a := range fn.Arguments {
		at := fmt.Sprintf("%s[%d]", at, i)
		if a.Version != "" && !slices.Contains(fn.Versions, a.Version) {
			v.bad(at+".version", "the versions are "+strings.Join(fn.Versions, ", "), "the function has no version %q", a.Version)
		}
		if k, twice := first[a.Version]; twice {
			v.bad(at, "keep one of them", "item %d is for the same versions", k)
		}
		first[a.Version] = i
		if a.File == "" {
			continue
		}
		text, err := auth.ReadFile(a.File, maxFile)
		if err != nil {
			v.bad(at+".file", "", "the file can't be read: %v", err)
			continue
		}
		if _, err := argschema.Compile(text); err != nil {
			v.bad(at+".file", "", "%s is no JSON Schema: %s", a.File, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
}
