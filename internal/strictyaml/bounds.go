package strictyaml

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// maxNames bounds the names in one section, because the parser's time grows with their
// square.
const maxNames = 1000

// unreasonable finds the first token beyond the bounds, and says why. The parser recurses into
// nested values, and its time grows with the square of the depth.
func unreasonable(tokens token.Tokens, maxDepth int) (t *token.Token, fault string) {
	tooDeep := fmt.Sprintf("more than %d nested lists and mappings", maxDepth)
	tooMany := fmt.Sprintf("more than %d names in one section", maxNames)
	// names counts the names of open block mappings by column, and inFlow the names of open
	// mappings in braces.
	names, inFlow := map[int]int{}, []int{}
	line, inLine := 0, 0
	for _, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
			column := t.Position.Column
			for other := range names {
				if other > column {
					delete(names, other)
				}
			}
			if t.Type != token.SequenceEntryType && len(inFlow) == 0 {
				names[column]++
				if names[column] > maxNames {
					return t, tooMany
				}
			}
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			inFlow = append(inFlow, 0)
		case token.SequenceEndType, token.MappingEndType:
			inFlow = inFlow[:max(len(inFlow)-1, 0)]
		case token.MappingValueType:
			if n := len(inFlow); n > 0 {
				inFlow[n-1]++
				if inFlow[n-1] > maxNames {
					return t, tooMany
				}
			}
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inLine++
		}
		if len(inFlow) > maxDepth || inLine > maxDepth || t.Position.IndentLevel > maxDepth {
			return t, tooDeep
		}
	}
	return nil, ""
}
