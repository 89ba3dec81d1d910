package config

import (
	_ "embed" // for schema.json
	"slices"
)

// schema is generated from [Config] and its comments; a test keeps it current.
//
//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (2020-12) of the file, for editors and other tools. It has
// names, types, defaults and allowed values. Only [Load] checks settings against each
// other.
func Schema() []byte { return slices.Clone(schema) }
