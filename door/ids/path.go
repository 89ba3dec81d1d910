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

// change replaces the values at a path, in place if possible, with what f returns; keep false
// removes them. f is also called for an absent member, if its parents exist. change returns v,
// or its replacement, and whether to keep it.
func change(v any, steps []step, f func(old any, present bool) (value any, keep bool, err error)) (any, bool, error) {
	if len(steps) == 0 {
		return f(v, true)
	}
	at, rest := steps[0], steps[1:]
	switch x := v.(type) {
	case map[string]any:
		value, present := x[at.name]
		if at.items || !present && len(rest) > 0 {
			return v, true, nil
		}
		keep, err := false, error(nil)
		if present {
			value, keep, err = change(value, rest, f)
		} else {
			value, keep, err = f(nil, false)
		}
		if delete(x, at.name); keep {
			x[at.name] = value
		}
		return v, true, err
	case []any:
		if !at.items {
			return v, true, nil
		}
		kept := x[:0]
		for _, item := range x {
			value, keep, err := change(item, rest, f)
			if err != nil {
				return v, true, err
			}
			if keep {
				kept = append(kept, value)
			}
		}
		return kept, true, nil
	}
	return v, true, nil
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

// pointer returns the path of a fault that a schema found, with numbers for items.
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
