// Package codes explains every short name in answers and logs, for the command that explains one
// and the page that lists them.
package codes

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/semelhq/semel/door"
)

//go:embed codes.yaml
var file []byte

// All are the codes of all doors, those of the service's own API first, and what else has a short
// name in answers and logs. The caller doesn't change the list.
var All = sync.OnceValue(func() []door.Meaning {
	text, err := yaml.YAMLToJSON(file)
	var others []door.Meaning
	if err == nil {
		err = json.Unmarshal(text, &others)
	}
	if err != nil {
		panic(fmt.Sprintf("codes.yaml: %v", err)) // a test reads it
	}
	return slices.Concat(door.Meanings(), others)
})
