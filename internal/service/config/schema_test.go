package config

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/yamlschema"
	"github.com/semelhq/semel/internal/strictyaml"
)

var update = flag.Bool("update", false, "write the golden files and the schema anew")

func TestSchema(t *testing.T) {
	t.Run("the schema in the tree is the one of the struct", func(t *testing.T) {
		schema := &yamlschema.Schema{Title: "Configuration of Semel", Comments: yamlschema.Comments(t, "../auth", "../../reconcile"), Variables: true}
		want, err := schema.Of(reflect.TypeFor[Config]())
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile("schema.json", want, 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(Schema(), want) {
			t.Error("schema.json is out of date; write it anew with go test ./internal/service/config -update")
		}
	})
	t.Run("every setting has a description", func(t *testing.T) {
		for name, text := range yamlschema.Comments(t, "../auth", "../../reconcile") {
			if len(text) < 10 || strings.ContainsAny(text, "\n\t") {
				t.Errorf("the comment of %s is %q", name, text)
			}
		}
		if *update {
			return // what is embedded is the schema before
		}
		generic, err := Settings(oneOfEach(), &Origins{}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range generic {
			if s.Description == "" {
				t.Errorf("%s has no description", s.Path)
			}
		}
	})
	t.Run("every variable of the environment sets one setting", func(t *testing.T) {
		var names []string
		strictyaml.EachLeaf("", reflect.ValueOf(oneOfEach()).Elem(), func(path string, _ reflect.Value, _ strictyaml.Field) {
			if name := EnvName(path); name != "" {
				names = append(names, name)
			}
		})
		slices.Sort(names)
		if len(names) < 20 || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("the variables are %q", names)
		}
	})
}
