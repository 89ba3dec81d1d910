package strictyaml

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Check reports values that the tags of a struct at a path don't allow, wherever they came
// from. It skips an empty section that wasn't written.
func (r *Report) Check(path string, v reflect.Value) {
	c := &checker{r, r.Origins.sections()}
	c.section(path, v)
}

// checker is a Report that also knows which sections were written.
type checker struct {
	*Report
	given map[string]bool // sections with anything written in them
}

func (c *checker) section(path string, v reflect.Value) {
	for _, f := range Fields(v.Type()) {
		at, value := Join(path, f.Name), v.FieldByIndex(f.Index)
		c.value(at, value, f)
		if most := member(v, f.Most); most.IsValid() && !most.IsZero() && value.Int() > most.Int() {
			more := "more"
			if value.Type() == durationType {
				more = "longer"
			}
			c.Add(at, fmt.Sprintf("%v is %s than the %s of %v", value, more, f.Most, most), "")
		}
		name, what, _ := strings.Cut(f.With, ",")
		if with := member(v, name); with.IsValid() && with.IsZero() && !value.IsZero() {
			c.Add(at, f.Name+" has no "+name, "add "+name+", "+what)
		}
	}
}

// member returns a member of a section by its name; invalid if there is none.
func member(section reflect.Value, name string) reflect.Value {
	for _, f := range Fields(section.Type()) {
		if f.Name == name && name != "" {
			return section.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

func (c *checker) value(path string, v reflect.Value, f Field) {
	if c.Faulty[path] {
		return
	}
	written := f.Name == itemName || c.Origins.Written(path)
	none := " is missing"
	if written {
		none = " is empty"
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			c.value(path, v.Elem(), f)
		}
	case v.Kind() == reflect.Struct && (written || !v.IsZero() || c.given[path]):
		c.section(path, v)
	case v.Kind() == reflect.Slice && v.Len() > 0 && v.Type() != rawType:
		for i := range v.Len() {
			c.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i), f.item())
		}
		c.unique(path, v, f)
	case f.Required && v.IsZero() && (!written || v.Kind() == reflect.String), f.Required && v.Kind() == reflect.Slice && v.Len() == 0:
		c.Add(path, f.Name+none, "")
	case v.Kind() == reflect.String && v.Len() == 0 && (!written || f.Enum == nil):
		if written && c.NoBlanks {
			c.Add(path, f.Name+none, "")
		}
	case f.Enum != nil && v.Kind() == reflect.String && !slices.Contains(f.Enum, v.String()):
		c.Add(path, fmt.Sprintf("%s is not one of %s", strconv.Quote(v.String()), strings.Join(f.Enum, ", ")), DidYouMean(v.String(), f.Enum))
	case f.Format != "" && v.Kind() == reflect.String:
		if fault, hint := c.Formats[f.Format](v.String()); fault != "" {
			c.Add(path, fault, hint)
		}
	case f.Range != "" && (written || !v.IsZero()):
		c.checkRange(path, v, f)
	}
}

// unique reports items of a list that share a text that must be unique, or that are one.
func (c *checker) unique(path string, list reflect.Value, of Field) {
	if list.Type().Elem().Kind() != reflect.Struct {
		seen := map[string]bool{}
		for i := 0; i < list.Len() && of.Unique != ""; i++ {
			item, text := fmt.Sprintf("%s[%d]", path, i), list.Index(i).String()
			if seen[text] && text != "" && !c.Faulty[item] {
				c.Add(item, text+" is given twice", of.Unique)
			}
			seen[text] = true
		}
		return
	}
	for _, f := range Fields(list.Type().Elem()) {
		first := map[string]string{}
		for i := 0; i < list.Len() && f.Unique != ""; i++ {
			v := list.Index(i).FieldByIndex(f.Index)
			if v.Kind() != reflect.String {
				break // it is a list with items that must be unique
			}
			item, text := fmt.Sprintf("%s[%d]", path, i), v.String()
			if other, twice := first[text]; twice && text != "" {
				c.Add(Join(item, f.Name), fmt.Sprintf("%s has the %s %q too", other, f.Name, text), f.Unique)
			}
			first[text] = item
		}
	}
}

// checkRange compares a number with the bounds in its tag.
func (c *checker) checkRange(path string, v reflect.Value, f Field) {
	lowText, highText, _ := strings.Cut(f.Range, ",")
	bound := func(text string) reflect.Value {
		b := reflect.New(v.Type()).Elem()
		if err := SetText(b, Field{}, text); err != nil {
			panic(fmt.Sprintf("the range of %s: %v", path, err))
		}
		return b
	}
	low := bound(lowText)
	if highText == "" {
		if less(v, low) {
			c.Add(path, fmt.Sprintf("%v is below %v", v, low), "")
		}
		return
	}
	if high := bound(highText); less(v, low) || less(high, v) {
		c.Add(path, fmt.Sprintf("%v is not between %v and %v", v, low, high), "")
	}
}

func less(a, b reflect.Value) bool {
	if a.CanFloat() {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}
