package config

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. The parser calls itself for everything inside of something,
// and the time that it needs for depth and for the names of one section grows with
// the square.
const (
	maxFile  = 1 << 20 // bytes
	maxDepth = 32      // lists and mappings in each other
	maxNames = 1000    // in one section
)

// unreasonable finds the first token that is beyond the bounds, and says why.
func unreasonable(tokens token.Tokens) (t *token.Token, fault string) {
	tooDeep := fmt.Sprintf("more than %d lists and mappings in each other", maxDepth)
	tooMany := fmt.Sprintf("more than %d names in one section", maxNames)
	// names counts those of the open mappings in blocks by their column, inFlow
	// those of the open ones in braces.
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

// redisMaxResult is the default of max_result where the store keeps everything in
// memory.
const redisMaxResult = Size(256 << 10)
