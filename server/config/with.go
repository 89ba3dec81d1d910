package config

import (
	"fmt"
	"reflect"
)

// With returns a copy that has one more operation and one more route. Settings
// that are zero in them get their defaults, and the whole is checked like a file:
// what is wrong comes as [Errors]. An operation replaces one of the same name.
func (c *Config) With(op Operation, rt Route) (*Config, error) {
	out := &Config{}
	copyInto(reflect.ValueOf(out).Elem(), reflect.ValueOf(c).Elem())
	if err := fillZero(reflect.ValueOf(&op).Elem()); err != nil {
		return nil, err
	}
	if err := fillZero(reflect.ValueOf(&rt).Elem()); err != nil {
		return nil, err
	}
	if have := out.operation(op.Name); have != nil {
		*have = op
	} else {
		out.Operations = append(out.Operations, op)
	}
	out.Routes = append(out.Routes, rt)
	p := &problems{origins: &Origins{at: map[string]Origin{}}, faulty: map[string]bool{}}
	derive(out, p.origins, p)
	eachLeaf("", reflect.ValueOf(out).Elem(), func(path string, v reflect.Value, f field) {
		var items []reflect.Value
		switch {
		case f.enum == nil:
			return
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				items = append(items, v.Index(i))
			}
		case v.String() != "":
			items = []reflect.Value{v}
		}
		for _, item := range items {
			if bad, is := setText(item, f, item.String()).(*valueError); is {
				p.add(path, bad.message, bad.hint)
			}
		}
	})
	for path, missing := range map[string]bool{
		fmt.Sprintf("routes[%d].match", len(out.Routes)-1):    rt.Match == "",
		fmt.Sprintf("routes[%d].upstream", len(out.Routes)-1): rt.Upstream == "",
	} {
		if missing {
			p.add(path, "the value is missing", "")
		}
	}
	validate(p, out)
	if errs := p.sorted(); len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}

// fillZero gives the settings of one item that are zero their defaults.
func fillZero(v reflect.Value) error {
	for _, f := range fieldsOf(v.Type()) {
		if member := v.Field(f.index); f.def != "" && member.IsZero() {
			if err := setText(member, f, f.def); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}
