package ids

import (
	_ "embed"
	"slices"
)

//go:embed testdata/vectors.json
var vectors []byte

//go:embed testdata/vectors.yaml
var vectorsRegistry []byte

// Vectors are the published test vectors of keys, as JSON, and the registry that some
// of them are derived with.
func Vectors() (json, registry []byte) { return slices.Clone(vectors), slices.Clone(vectorsRegistry) }
