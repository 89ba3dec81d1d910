package ids

import (
	"fmt"
	"strings"
)

// Path names places in a JSON object: names joined by dots, with [] after a name for
// every item of an array, such as "customer.phone" or "items[].sku".
type Path string

// step is one part of a path: a member, or every item.
type step struct {
	name  string
	items bool
}

// steps splits a path. It reports false if the path is malformed.
func (p Path) steps() ([]step, bool) {
	var steps []step
	for part := range strings.SplitSeq(string(p), ".") {
		name := strings.TrimRight(part, "[]")
		rest := part[len(name):]
		if name == "" || strings.Trim(rest, "[]") != "" || strings.ReplaceAll(rest, "[]", "") != "" || strings.ContainsAny(name, "[]*") {
			return nil, false
		}
		steps = append(steps, step{name: name})
		for range len(rest) / 2 {
			steps = append(steps, step{items: true})
		}
	}
	return steps, true
}

// change replaces the values at a path, in place, by what f returns; keep false
// removes them. f is also called for an absent member, if its parents exist. change
// returns v, or its replacement.
func change(v any, steps []step, f func(old any, present bool) (value any, keep bool, err error)) (any, error) {
	if len(steps) == 0 {
		return v, nil
	}
	last, rest := len(steps) == 1, steps[1:]
	switch at := steps[0]; x := v.(type) {
	case map[string]any:
		if at.items {
			return v, nil
		}
		old, present := x[at.name]
		if !last {
			if !present {
				return v, nil
			}
			inner, err := change(old, rest, f)
			x[at.name] = inner
			return v, err
		}
		value, keep, err := f(old, present)
		if err != nil {
			return v, err
		}
		if delete(x, at.name); keep {
			x[at.name] = value
		}
	case []any:
		if !at.items {
			return v, nil
		}
		kept := x[:0]
		for _, item := range x {
			value, keep, err := item, true, error(nil)
			if last {
				value, keep, err = f(item, true)
			} else {
				value, err = change(item, rest, f)
			}
			if err != nil {
				return v, err
			}
			if keep {
				kept = append(kept, value)
			}
		}
		return kept, nil
	}
	return v, nil
}

// walk visits every member of every object in v, the outer ones first, and removes those
// for which visit says drop.
func walk(v any, path string, visit func(path, name string) (drop bool, err error)) error {
	switch x := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(x) {
			at := join(path, name)
			drop, err := visit(at, name)
			if err != nil {
				return err
			}
			if drop {
				delete(x, name)
				continue
			}
			if err := walk(x[name], at, visit); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range x {
			if err := walk(item, path+"[]", visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// pointer is the path of a fault that a schema found, with numbers for items.
func pointer(location []string) string {
	path := "args"
	for _, part := range location {
		if part != "" && strings.Trim(part, "0123456789") == "" {
			path += fmt.Sprintf("[%s]", part)
		} else {
			path = join(path, part)
		}
	}
	return path
}
