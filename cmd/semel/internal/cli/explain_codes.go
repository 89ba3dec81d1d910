package cli

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
var codesFile []byte

// explained are the codes of all doors, those of the service's own API first, and what else
// has a short name in answers, logs and commands.
var explained = sync.OnceValue(func() []door.Meaning {
	text, err := yaml.YAMLToJSON(codesFile)
	var others []door.Meaning
	if err == nil {
		err = json.Unmarshal(text, &others)
	}
	if err != nil {
		panic(fmt.Sprintf("codes.yaml: %v", err)) // a test reads it
	}
	return slices.Concat(door.Meanings(), others)
})
