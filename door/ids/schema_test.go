package ids

import (
	"bytes"
	"os"
	"reflect"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/yamlschema"
)

func TestRegistrySchema(t *testing.T) {
	clause.Proves(t, "IDS-VI.6")
	schema := &yamlschema.Schema{Title: "Registry of commands", Comments: yamlschema.Comments(t, "../judge", "../../internal/reconcile")}
	want, err := schema.Of(reflect.TypeFor[Registry]())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("registry.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(RegistrySchema(), want) {
		t.Error("registry.schema.json is out of date; write it anew with go test ./door/ids -run TestRegistrySchema -update")
	}
}
