// Package argschema checks the arguments of calls against JSON Schemas, of draft 2020-12 unless
// a schema names another. It checks formats, and no schema can read a file or the network.
package argschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxFaults is how many mistakes in one value Check reports.
const maxFaults = 20

// Schema is a JSON Schema. It may be used concurrently.
type Schema struct{ compiled *jsonschema.Schema }

// schemaURL is the name of a schema during compilation.
const schemaURL = "args:schema"

// Compile reads a JSON Schema.
func Compile(text []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, err
	}
	return &Schema{compiled}, nil
}

// noLoader keeps schemas from reading files and the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside of the schema", url)
}

// Decode reads JSON in the form that [Schema.Check] takes: numbers are [json.Number].
func Decode(text []byte) (tree any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&tree)
	return tree, err
}

// Mistake is one thing that doesn't fit. It has names of members and of rules, but no values.
type Mistake struct {
	// Path leads to the value, by names of members and indexes of items.
	Path []string
	// Keyword of the schema, such as minimum; empty if there is none.
	Keyword string
	// Names are the members that the value lacks or the schema doesn't know, if the keyword is
	// required or additionalProperties. There are at most 20.
	Names []string
	// Message continues after the name of the value, such as "is string and should be number".
	Message string
}

// Check returns the first mistakes, at most 20. Pass it only a tree in which [Bounded] has
// found none.
func (s *Schema) Check(tree any) []Mistake {
	err := s.compiled.Validate(tree)
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Mistake{{Message: "can't be checked against the schema"}}
	}
	return leaves(failed, nil)
}

// leaves returns the errors that aren't caused by others.
func leaves(f *jsonschema.ValidationError, found []Mistake) []Mistake {
	if len(f.Causes) == 0 && len(found) < maxFaults {
		return append(found, faultOf(f))
	}
	for _, c := range f.Causes {
		found = leaves(c, found)
	}
	return found
}

func faultOf(f *jsonschema.ValidationError) Mistake {
	mistake := Mistake{Path: f.InstanceLocation, Message: "does not fit the schema"}
	if keywords := f.ErrorKind.KeywordPath(); len(keywords) > 0 {
		mistake.Keyword = keywords[0]
		mistake.Message = "does not fit " + strings.Join(keywords, "/")
	}
	switch x := f.ErrorKind.(type) {
	case *kind.Required:
		mistake.Names = x.Missing[:min(len(x.Missing), maxFaults)]
		mistake.Message = "lacks " + strings.Join(mistake.Names, ", ")
	case *kind.AdditionalProperties:
		mistake.Names = x.Properties[:min(len(x.Properties), maxFaults)]
		mistake.Message = "has members that the schema does not know: " + strings.Join(mistake.Names, ", ")
	case *kind.Type:
		mistake.Message = fmt.Sprintf("is %s and should be %s", x.Got, strings.Join(x.Want, " or "))
	}
	return mistake
}

// MaxValues bounds the values in arguments, at any depth: a tree of them takes many times the
// memory of their text.
const MaxValues = 20_000

// Bounds of numbers. A schema computes with exact fractions, which can be very long even for a
// short text.
const (
	MaxNumber   = 1000 // bytes
	MaxExponent = 1000
)

// Bounded returns a mistake if a number is too long to check, and otherwise nil.
func Bounded(tree any) *Mistake {
	path, found := longNumber(tree, nil)
	if !found {
		return nil
	}
	return &Mistake{Path: path, Message: "has too many digits or too large an exponent"}
}

func longNumber(v any, at []string) ([]string, bool) {
	switch x := v.(type) {
	case map[string]any:
		for name, item := range x {
			if path, found := longNumber(item, append(at, name)); found {
				return path, true
			}
		}
	case []any:
		for i, item := range x {
			if path, found := longNumber(item, append(at, strconv.Itoa(i))); found {
				return path, true
			}
		}
	case json.Number:
		exponent := 0
		var err error
		if i := strings.IndexAny(string(x), "eE"); i >= 0 {
			exponent, err = strconv.Atoi(string(x)[i+1:])
		}
		if err != nil || exponent > MaxExponent || exponent < -MaxExponent || len(x) > MaxNumber {
			return slices.Clone(at), true
		}
	}
	return nil, false
}
