package strictyaml

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Field is a possible member of a mapping, declared by a struct field and its tags.
type Field struct {
	// Index is the field's place in its struct, or in a group embedded there, Name its JSON
	// name, and Default its default as text.
	Index         []int
	Name, Default string
	// Enum has the allowed texts; if empty, all are allowed.
	Enum []string
	// Range has the smallest and the largest value, separated by a comma.
	Range string
	// Most names a member of the same section that this one must not exceed, unless that one is
	// zero.
	Most string
	// With names a member of the same section that must be set together with this one, and
	// after a comma says what it is.
	With string
	// Unique says that no two items of a list may have the same text here, or if this is the
	// list itself, be the same text; it is the hint if they are.
	Unique string
	// Format names, in [Report.Formats], the format of a text that isn't empty.
	Format string
	// Flag is the command line flag that sets it.
	Flag string
	// Secret says that the value must not be shown, and what kind of secret it is.
	Secret string
	// Required says that it must be present and not empty.
	Required bool
	// Single says that a list of one item may be written as that item.
	Single bool
	// Pairs says that a list of texts NAME=VALUE may be written as a mapping.
	Pairs bool
	// Distinct says that an empty list differs from none.
	Distinct bool
	// Numbers says that a text may be written as a whole number.
	Numbers bool
}

var fieldCache sync.Map // reflect.Type -> []Field

// Fields lists the members of a struct in order: its fields with a json tag, and those of
// embedded structs, which declare settings that several sections share.
func Fields(t reflect.Type) []Field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]Field)
	}
	var fields []Field
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		if name == "" {
			continue
		}
		f := Field{
			Index: field.Index, Name: name, Default: tag.Get("default"), Range: tag.Get("range"), Format: tag.Get("format"), Most: tag.Get("most"), With: tag.Get("with"), Unique: tag.Get("unique"), Flag: tag.Get("flag"), Secret: tag.Get("secret"),
			Required: tag.Get("required") != "", Single: tag.Get("single") != "", Pairs: tag.Get("pairs") != "", Distinct: tag.Get("empty") == "distinct", Numbers: tag.Get("numbers") != "",
		}
		if enum := tag.Get("enum"); enum != "" {
			f.Enum = strings.Split(enum, ",")
		}
		fields = append(fields, f)
	}
	fieldCache.Store(t, fields)
	return fields
}

// itemName is the name of a list's item in errors.
const itemName = "item"

// item returns the field for an item of this list.
func (f Field) item() Field {
	return Field{Name: itemName, Enum: f.Enum, Format: f.Format, Secret: f.Secret, Numbers: f.Numbers, Required: true}
}

// fieldNames returns the names that a section may have.
func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range Fields(t) {
		names = append(names, f.Name)
	}
	return names
}

// FillDefaults sets zero members with a default in a struct, and in the structs inside it.
func FillDefaults(v reflect.Value) {
	for _, f := range Fields(v.Type()) {
		member := v.FieldByIndex(f.Index)
		switch {
		case member.Kind() == reflect.Struct:
			FillDefaults(member)
		case f.Default != "" && member.IsZero():
			if err := SetText(member, f, f.Default); err != nil {
				panic(fmt.Sprintf("the default of %s: %v", f.Name, err))
			}
		}
	}
}

// Copy returns a value that shares nothing with the original.
func Copy(from reflect.Value) reflect.Value {
	to := reflect.New(from.Type()).Elem()
	to.Set(from)
	switch {
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			if to.Field(i).CanSet() {
				to.Field(i).Set(Copy(from.Field(i)))
			}
		}
	case from.Kind() == reflect.Slice && from.Len() > 0:
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			to.Index(i).Set(Copy(from.Index(i)))
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(from.Type().Elem()))
		to.Elem().Set(Copy(from.Elem()))
	}
	return to
}

// Join appends a name to a path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Parent returns the path of the section or list that a member or item belongs to.
func Parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// EachLeaf calls fn for every scalar and list of scalars, in order.
func EachLeaf(path string, v reflect.Value, fn func(path string, v reflect.Value, f Field)) {
	for _, f := range Fields(v.Type()) {
		member, at := v.FieldByIndex(f.Index), Join(path, f.Name)
		switch {
		case member.Kind() == reflect.Struct:
			EachLeaf(at, member, fn)
		case member.Kind() == reflect.Slice && member.Type().Elem().Kind() == reflect.Struct:
			for i := range member.Len() {
				EachLeaf(fmt.Sprintf("%s[%d]", at, i), member.Index(i), fn)
			}
		default:
			fn(at, member, f)
		}
	}
}

var (
	durationType = reflect.TypeFor[Duration]()
	sizeType     = reflect.TypeFor[Size]()
	rawType      = reflect.TypeFor[json.RawMessage]()
)
