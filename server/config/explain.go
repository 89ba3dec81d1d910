package config

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Setting is one value with where it came from and what it is for.
type Setting struct {
	// Path names the setting.
	Path string `json:"path"`
	// Value is as in the file; secrets are hidden.
	Value string `json:"value"`
	// Origin is where the value came from.
	Origin Origin `json:"origin"`
	// Env is the variable that sets it, if there is one.
	Env string `json:"env,omitempty"`
	// Description says what it is for, and Allowed the values it may have.
	Description string   `json:"description"`
	Allowed     []string `json:"allowed,omitempty"`
}

// Settings lists every setting, or those at and below a path, in the order of
// the file. A path that does not exist is an error with a suggestion; one in a
// list that is empty gives the settings that an item has.
func Settings(c *Config, origins *Origins, path string) ([]Setting, error) {
	all := settings(redacted(c), origins)
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
		for at := s.Path; at != ""; at = parent(at) {
			names = append(names, at)
		}
	}
	if hint = didYouMean(path, names); hint != "" {
		hint = "; " + hint
	}
	return nil, fmt.Errorf("there is no setting %q%s", path, hint)
}

var indexes = regexp.MustCompile(`\[\d*\]`)

func settings(c *Config, origins *Origins) []Setting {
	described := descriptions()
	var list []Setting
	eachLeaf("", reflect.ValueOf(c).Elem(), func(path string, v reflect.Value, f field) {
		list = append(list, Setting{
			Path: path, Value: textOf(v), Origin: origins.Of(path), Env: EnvName(path),
			Description: described[indexes.ReplaceAllString(path, "[]")], Allowed: f.enum,
		})
	})
	return list
}

// below selects a setting, or those of a section or a list.
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

// oneOfEach is a configuration whose lists have one item with its defaults.
func oneOfEach() *Config {
	c := &Config{}
	v := reflect.ValueOf(c).Elem()
	fillDefaults(v)
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for _, f := range fieldsOf(v.Type()) {
			switch member := v.Field(f.index); {
			case member.Kind() == reflect.Struct:
				fill(member)
			case member.Kind() == reflect.Slice && member.Type().Elem().Kind() == reflect.Struct:
				member.Set(reflect.MakeSlice(member.Type(), 1, 1))
				fillDefaults(member.Index(0))
			}
		}
	}
	fill(v)
	return c
}

// descriptions are those of the schema, by path with [] for every item of a
// list.
func descriptions() map[string]string {
	type node struct {
		Description string          `json:"description"`
		Properties  map[string]node `json:"properties"`
		Items       *node           `json:"items"`
	}
	var top node
	if err := json.Unmarshal(schema, &top); err != nil {
		panic("config: the schema is no JSON: " + err.Error())
	}
	found := map[string]string{}
	var walk func(path string, n node)
	walk = func(path string, n node) {
		found[path] = n.Description
		for name, member := range n.Properties {
			walk(join(path, name), member)
		}
		if n.Items != nil && n.Items.Properties != nil {
			for name, member := range n.Items.Properties {
				walk(path+"[]."+name, member)
			}
		}
	}
	walk("", top)
	return found
}

// Explain writes a table of [Settings].
func Explain(w io.Writer, c *Config, origins *Origins, path string) error {
	list, err := Settings(c, origins, path)
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM\tDESCRIPTION")
	for _, s := range list {
		value := s.Value
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", s.Path, strings.Map(printable, value), s.Origin, s.Description)
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
