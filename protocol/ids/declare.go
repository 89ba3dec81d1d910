package ids

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// NewRegistry makes a registry of commands that are declared in Go. They are checked,
// and defaults filled in, as [Load] does; the JSON of schemas and of defaults is read
// as strictly as envelopes are. What is wrong comes as [Problems], everything at once,
// each with its path, such as "commands[2].window", and without a line.
//
// The commands are copied: what the caller does to them afterwards changes nothing.
func NewRegistry(commands []Entry, opts LoadOptions) (*Registry, error) {
	rep := newReport(cmp.Or(opts.File, "registry"))
	rep.inGo = true
	reg := &Registry{Version: 1, Commands: make([]Entry, len(commands))}
	for i := range commands {
		c := &checker{rep, fmt.Sprintf("commands[%d]", i)}
		reg.Commands[i] = c.copyOf(reflect.ValueOf(commands[i])).Interface().(Entry)
		// The linter is told of what the decoder of a file would have left out.
		for _, p := range rep.list {
			if strings.HasPrefix(p.Path, c.at+".") {
				p.Command = commands[i].Name()
			}
		}
	}
	l := &linter{report: rep, known: opts.Bindings}
	l.registry(reg)
	return reg.checked(rep)
}

// checker does for values of Go what the decoder does for a file: it refuses what the
// tags of the fields do not allow.
type checker struct {
	*report
	at string
}

// copyOf is a struct of which nothing is shared with the one given.
func (c *checker) copyOf(from reflect.Value) reflect.Value {
	to := reflect.New(from.Type()).Elem()
	c.section(c.at, to, from)
	return to
}

// section copies a struct by its fields that a file can have.
func (c *checker) section(path string, to, from reflect.Value) {
	for i := range from.NumField() {
		field := from.Type().Field(i)
		name := field.Tag.Get("yaml")
		switch {
		case name == "":
		case !from.Field(i).IsZero():
			c.value(join(path, name), to.Field(i), from.Field(i), field.Tag)
		case field.Tag.Get("need") != "":
			c.add(join(path, name), name+" is missing", "")
		}
	}
}

// value copies one value that was given.
func (c *checker) value(path string, to, from reflect.Value, tag reflect.StructTag) {
	switch {
	case from.Type() == rawType:
		text, err := canon.Canonicalize(from.Bytes(), canon.Exact)
		if err != nil {
			c.add(path, "this is no strict JSON", "")
			return
		}
		to.Set(reflect.ValueOf(json.RawMessage(text)))
	case from.Type() == durationType && from.Int() < 0:
		c.add(path, "this is less than nothing", "write a span above zero, or leave it out")
	case from.Kind() == reflect.Pointer:
		to.Set(reflect.New(from.Type().Elem()))
		c.value(path, to.Elem(), from.Elem(), tag)
	case from.Kind() == reflect.Struct:
		c.section(path, to, from)
	case from.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			c.value(fmt.Sprintf("%s[%d]", path, i), to.Index(i), from.Index(i), tag)
		}
	case from.Kind() == reflect.String && from.Len() == 0:
		c.add(path, "this is empty", "")
	case from.Kind() == reflect.String && tag.Get("oneof") != "" && !slices.Contains(strings.Split(tag.Get("oneof"), ","), from.String()):
		c.add(path, strconv.Quote(from.String())+" is not one of "+strings.ReplaceAll(tag.Get("oneof"), ",", ", "), "")
	default:
		to.Set(from)
	}
}
