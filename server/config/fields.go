package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A field is one setting, as its struct field declares it.
type field struct {
	index    int
	name     string
	def      string
	enum     []string
	flag     string
	secret   string
	required bool
	// single says that a list of one item may be written as that item.
	single bool
	// distinct says that an empty list is not the same as none.
	distinct bool
}

var fieldCache sync.Map // reflect.Type -> []field

// fieldsOf lists the settings of a struct in their order.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		f := field{index: i, name: name, def: tag.Get("default"), flag: tag.Get("flag"),
			secret: tag.Get("secret"), required: tag.Get("required") != "", distinct: tag.Get("empty") == "distinct", single: tag.Get("single") != ""}
		if enum := tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		fields = append(fields, f)
	}
	fieldCache.Store(t, fields)
	return fields
}

// fieldNames are the names that a section may have.
func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// fillDefaults sets what has a default in a struct and the structs in it.
func fillDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		member := v.Field(f.index)
		switch {
		case member.Kind() == reflect.Struct:
			fillDefaults(member)
		case f.def != "":
			if err := setText(member, f, f.def); err != nil {
				panic(fmt.Sprintf("config: the default of %s: %v", f.name, err))
			}
		}
	}
}

// join appends a name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// eachLeaf calls fn for every setting that has a value of its own, in order:
// scalars and lists of scalars.
func eachLeaf(path string, v reflect.Value, fn func(path string, v reflect.Value, f field)) {
	for _, f := range fieldsOf(v.Type()) {
		member, at := v.Field(f.index), join(path, f.name)
		switch {
		case member.Kind() == reflect.Struct:
			eachLeaf(at, member, fn)
		case member.Kind() == reflect.Slice && member.Type().Elem().Kind() == reflect.Struct:
			for i := range member.Len() {
				eachLeaf(fmt.Sprintf("%s[%d]", at, i), member.Index(i), fn)
			}
		default:
			fn(at, member, f)
		}
	}
}

var (
	durationType = reflect.TypeFor[Duration]()
	sizeType     = reflect.TypeFor[Size]()
)

// A valueError is a text that a setting can't have.
type valueError struct{ message, hint string }

func (e *valueError) Error() string { return e.message }

// setText sets a scalar, or a list of scalars from its items between commas.
func setText(v reflect.Value, f field, text string) error {
	if v.Kind() == reflect.Slice {
		var items []string
		if text != "" {
			items = strings.Split(text, ",")
		}
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			if err := setText(list.Index(i), f, strings.TrimSpace(item)); err != nil {
				return err
			}
		}
		v.Set(list)
		return nil
	}
	quoted := strconv.Quote(text)
	if f.secret != "" {
		quoted = "the value"
	}
	switch {
	case v.Type() == durationType:
		d, err := ParseDuration(text)
		if err != nil {
			return &valueError{fmt.Sprintf("%s %v", quoted, err), durationHint(text, err)}
		}
		v.SetInt(int64(d))
	case v.Type() == sizeType:
		s, err := ParseSize(text)
		if err != nil {
			return &valueError{fmt.Sprintf("%s %v", quoted, err), sizeHint(text, err)}
		}
		v.SetInt(int64(s))
	case v.Kind() == reflect.String:
		if f.enum != nil && !slices.Contains(f.enum, text) {
			return &valueError{fmt.Sprintf("%s is not one of %s", quoted, strings.Join(f.enum, ", ")), didYouMean(text, f.enum)}
		}
		v.SetString(text)
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return &valueError{quoted + " is no whole number", "write digits, such as 1000"}
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x-x != 0 { // neither infinite nor NaN
			return &valueError{quoted + " is no number", "write a number, such as 5 or 0.5"}
		}
		v.SetFloat(x)
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return &valueError{quoted + " is neither true nor false", boolHint(text)}
		}
		v.SetBool(text == "true")
	default:
		return errors.New("has a type that can't be set")
	}
	return nil
}

// textOf is the text that setText reads as the value.
func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		var items []string
		for i := range v.Len() {
			items = append(items, textOf(v.Index(i)))
		}
		return strings.Join(items, ",")
	}
	return fmt.Sprint(v.Interface())
}

func durationHint(text string, err error) string {
	if errors.Is(err, errRange) {
		return ""
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && text != "" {
		return "a duration needs a unit: write " + strings.TrimSuffix(text, ".0") + "s for seconds"
	}
	return "write a number with a unit, such as 500ms, 30s, 5m, 2h or 7d"
}

func sizeHint(text string, err error) string {
	if errors.Is(err, errRange) {
		return ""
	}
	for _, u := range sizeUnits {
		if n := len(text) - len(u.name); n > 0 && strings.EqualFold(text[n:], u.name) {
			if _, err := strconv.ParseInt(strings.TrimSpace(text[:n]), 10, 64); err == nil {
				return "write " + strings.TrimSpace(text[:n]) + u.name
			}
		}
	}
	return "write bytes, or a whole number with a unit, such as 256KiB or 1MB"
}

func boolHint(text string) string {
	switch strings.ToLower(text) {
	case "yes", "on", "y", "1", "true":
		return "write true"
	case "no", "off", "n", "0", "false":
		return "write false"
	}
	return "write true or false"
}
