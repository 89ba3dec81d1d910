package strictyaml

import "github.com/semelhq/semel/internal/spelling"

// DidYouMean suggests the nearest word; empty if none is near.
func DidYouMean(word string, words []string) string {
	if best := spelling.Nearest(word, words); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}
