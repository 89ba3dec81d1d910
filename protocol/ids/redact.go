package ids

import (
	"encoding/json"
	"slices"
)

// Redacted stands for what a reader may not see.
const Redacted = "[redacted]"

// RedactFor is the outcome, which is JSON, as a reader with these rights may see it
// (IDS-XV.4): what the declaration hides from him is replaced by [Redacted], so that
// the shape stays. An outcome that does not have the shape that a path supposes is
// hidden from where it differs: it may have there, in another form, what is to be
// hidden. Of anything but JSON nothing is shown, and ok is false.
func (e *Entry) RedactFor(outcome []byte, rights []string) (shown []byte, ok bool) {
	shown, _, ok = e.redact(outcome, rights)
	return shown, ok
}

// redact is RedactFor, and reports whether anything was hidden.
func (e *Entry) redact(outcome []byte, rights []string) (shown []byte, hidden, ok bool) {
	var paths []Path
	for _, r := range e.Redact {
		if r.Unless == "" || !slices.Contains(rights, r.Unless) {
			paths = append(paths, r.Path)
		}
	}
	if len(paths) == 0 || len(outcome) == 0 {
		return outcome, false, true
	}
	// A reader that takes the last of two members and this one would see different
	// things, so the text that is shown is written anew.
	tree, err := decode(outcome)
	if err != nil {
		return nil, true, false
	}
	for _, p := range paths {
		steps, ok := p.steps()
		if !ok { // Load refuses it
			return nil, true, false
		}
		var here bool
		tree, here = hide(tree, steps)
		hidden = hidden || here
	}
	shown, err = json.Marshal(tree)
	return shown, hidden, err == nil
}

// hide replaces what a path leads to, and what stands in its way: an array that the
// path does not go through is gone through all the same.
func hide(v any, steps []step) (shown any, hidden bool) {
	if len(steps) == 0 {
		return Redacted, true
	}
	switch x := v.(type) {
	case nil:
		return nil, false
	case map[string]any:
		if steps[0].items {
			return Redacted, true
		}
		old, present := x[steps[0].name]
		if !present {
			return v, false
		}
		x[steps[0].name], hidden = hide(old, steps[1:])
		return v, hidden
	case []any:
		if steps[0].items {
			steps = steps[1:]
		}
		for i := range x {
			var here bool
			x[i], here = hide(x[i], steps)
			hidden = hidden || here
		}
		return v, hidden
	}
	return Redacted, true
}

// MayExecute reports whether a caller with these rights may run the command. Every
// right that is declared is needed; where none is, everybody may.
func (e *Entry) MayExecute(rights []string) bool { return hasAll(rights, e.Rights.Execute) }

// MayRead reports whether a caller with these rights may see the outcome; as for
// MayExecute.
func (e *Entry) MayRead(rights []string) bool { return hasAll(rights, e.Rights.Read) }

// MayAct reports whether a caller with these rights may act for another.
func (e *Entry) MayAct(rights []string) bool {
	return slices.ContainsFunc(e.Binding.Acting, func(r string) bool { return slices.Contains(rights, r) })
}

func hasAll(rights, needed []string) bool {
	return !slices.ContainsFunc(needed, func(r string) bool { return !slices.Contains(rights, r) })
}
