package ids

import (
	_ "embed"
	"slices"
)

//go:embed envelope.schema.json
var envelopeSchema []byte

// EnvelopeSchema returns the JSON Schema (2020-12) of envelopes, for other programs.
// [ParseCommand] reads every envelope that the schema accepts, except for faults that no schema
// finds: duplicate names, invalid text and lengths in bytes.
func EnvelopeSchema() []byte { return slices.Clone(envelopeSchema) }

// registrySchema is generated from [Registry] and its comments; a test keeps it current.
//
//go:embed registry.schema.json
var registrySchema []byte

// RegistrySchema returns the JSON Schema (2020-12) of registries, for editors and other tools.
// It has names, types and allowed values. Only [Load] checks declarations against each other.
func RegistrySchema() []byte { return slices.Clone(registrySchema) }

//go:embed testdata/vectors.json
var vectors []byte

//go:embed testdata/vectors.yaml
var vectorsRegistry []byte

// Vectors returns the published test vectors of keys, as JSON, and the registry for some of
// them.
func Vectors() (json, registry []byte) { return slices.Clone(vectors), slices.Clone(vectorsRegistry) }
