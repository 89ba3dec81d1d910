package config

import (
	"cmp"
	_ "embed" // for schema.json
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Setting is a setting's value, origin and purpose.
type Setting struct {
	// Path names the setting.
	Path string `json:"path"`
	// Value is written as in the file, with secrets hidden.
	Value string `json:"value"`
	// Origin is where the value came from.
	Origin Origin `json:"origin"`
	// Env is the environment variable that sets it, if there is one.
	Env string `json:"env,omitempty"`
	// Allowed are the values that it may have.
	Description string   `json:"description"`
	Allowed     []string `json:"allowed,omitempty"`
}

// Settings lists all settings, or those at and below a path, in the order of the file. If
// the path doesn't exist, the error has a suggestion. A path in an empty list gives the
// settings that an item has.
func Settings(c *Config, origins *Origins, path string) ([]Setting, error) {
	all := settings(Redacted(c), origins)
	if path == "" {
		return all, nil
	}
	found := below(all, path)
	if len(found) > 0 {
		return found, nil
	}
	generic := settings(oneOfEach(), &Origins{})
	for i := range generic {
		generic[i].Path = indexes.ReplaceAllString(generic[i].Path, "[]")
	}
	if found = below(generic, indexes.ReplaceAllString(path, "[]")); len(found) > 0 {
		return found, nil
	}
	hint, names := "", []string{}
	for _, s := range slices.Concat(all, generic) {
		for at := s.Path; at != ""; at = strictyaml.Parent(at) {
			names = append(names, at)
		}
	}
	if hint = strictyaml.DidYouMean(path, names); hint != "" {
		hint = "; " + hint
	}
	return nil, fmt.Errorf("there is no setting %q%s", path, hint)
}

var indexes = regexp.MustCompile(`\[\d*\]`)

func settings(c *Config, origins *Origins) []Setting {
	described := descriptions()
	var list []Setting
	strictyaml.EachLeaf("", reflect.ValueOf(c).Elem(), func(path string, v reflect.Value, f strictyaml.Field) {
		list = append(list, Setting{
			Path: path, Value: strictyaml.TextOf(v), Origin: origins.Of(path), Env: EnvName(path),
			Description: described[indexes.ReplaceAllString(path, "[]")], Allowed: f.Enum,
		})
	})
	return list
}

func below(all []Setting, path string) []Setting {
	var found []Setting
	for _, s := range all {
		rest, ok := strings.CutPrefix(s.Path, path)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			found = append(found, s)
		}
	}
	return found
}

// oneOfEach is a configuration with the defaults, and one item in each list.
func oneOfEach() *Config {
	c := &Config{}
	v := reflect.ValueOf(c).Elem()
	strictyaml.FillDefaults(v)
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for _, f := range strictyaml.Fields(v.Type()) {
			switch member := v.FieldByIndex(f.Index); {
			case member.Kind() == reflect.Struct:
				fill(member)
			case member.Kind() == reflect.Slice && member.Type().Elem().Kind() == reflect.Struct:
				member.Set(reflect.MakeSlice(member.Type(), 1, 1))
				strictyaml.FillDefaults(member.Index(0))
			}
		}
	}
	fill(v)
	return c
}

// descriptions has the schema's descriptions by path, with [] for the items of a list.
func descriptions() map[string]string {
	type node struct {
		Description string          `json:"description"`
		Properties  map[string]node `json:"properties"`
		Items       *node           `json:"items"`
	}
	var top node
	if err := json.Unmarshal(schema, &top); err != nil {
		panic("config: the schema is not JSON: " + err.Error())
	}
	found := map[string]string{}
	var walk func(path string, n node)
	walk = func(path string, n node) {
		found[path] = n.Description
		for name, member := range n.Properties {
			walk(strictyaml.Join(path, name), member)
		}
		if n.Items != nil {
			walk(path+"[]", *n.Items)
		}
	}
	walk("", top)
	return found
}

// Explain writes settings as a table.
func Explain(w io.Writer, list []Setting) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM\tDESCRIPTION")
	for _, s := range list {
		about := s.Description
		if len(s.Allowed) > 0 {
			about += " Allowed: " + strings.Join(s.Allowed, ", ") + "."
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", s.Path, strings.Map(printable, cmp.Or(s.Value, "-")), s.Origin, about)
	}
	return tw.Flush()
}

// printable keeps a value from breaking the table.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}

// schema is generated from [Config] and its comments; a test keeps it current.
//
//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (2020-12) of the file, for editors and other tools. It has
// names, types, defaults and allowed values. Only [Load] checks settings against each
// other.
func Schema() []byte { return slices.Clone(schema) }
