package ids

import (
	_ "embed" // for the schema
	"slices"
)

//go:embed envelope.schema.json
var envelopeSchema []byte

// EnvelopeSchema is the JSON Schema (2020-12) of envelopes, for other programs.
// [ParseCommand] reads every envelope that it accepts, except for faults that no schema
// finds: duplicate names, invalid text and lengths in bytes.
func EnvelopeSchema() []byte { return slices.Clone(envelopeSchema) }
