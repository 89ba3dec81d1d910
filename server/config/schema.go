package config

import (
	_ "embed" // for schema.json
	"slices"
)

// schema is made from [Config] and its comments by the test that keeps it
// current.
//
//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (2020-12) of the file, for editors and other tools.
// It knows names, types, defaults and allowed values; what settings mean
// together, only [Load] knows.
func Schema() []byte { return slices.Clone(schema) }
