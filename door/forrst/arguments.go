package forrst

import (
	"fmt"
	"slices"

	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/jsonscan"
)

// misfits returns where the arguments don't fit the schema of the called version.
func (f *function) misfits(r *Request) (errs Errors) {
	schema := f.arguments[r.Version]
	if schema == nil {
		return nil
	}
	if jsonscan.Values(r.canonical) > argschema.MaxValues {
		errs.misfit([]string{"call", "arguments"}, "", fmt.Sprintf("The arguments have more than %d values", argschema.MaxValues))
		return errs
	}
	tree := jsonscan.Tree(r.Arguments) // the parser has read them before
	var mistakes []argschema.Mistake
	if long := argschema.Bounded(tree); long != nil {
		mistakes = []argschema.Mistake{*long}
	} else {
		mistakes = schema.Check(tree)
	}
	for _, mistake := range mistakes {
		at := slices.Concat([]string{"call", "arguments"}, mistake.Path)
		message := "It " + mistake.Message
		switch mistake.Keyword {
		case "required":
			message = "The argument is missing"
		case "additionalProperties":
			message = "There is no such argument"
		default:
			mistake.Names = nil
		}
		if len(mistake.Names) == 0 {
			errs.misfit(at, mistake.Keyword, message)
		}
		for _, name := range mistake.Names[:min(len(mistake.Names), maxErrors)] {
			errs.misfit(append(slices.Clip(at), name), mistake.Keyword, message)
		}
	}
	return errs
}

func (list *Errors) misfit(at []string, keyword, message string) {
	e := list.add(SchemaValidationFailed, At(at...), "%s", message)
	if keyword != "" {
		e.Details = map[string]any{"constraint": keyword}
	}
}
