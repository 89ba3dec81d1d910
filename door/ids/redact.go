package ids

import (
	"encoding/json"
	"slices"

	"github.com/semelhq/semel/internal/argschema"
)

// Redacted replaces values that a reader may not see.
const Redacted = "[redacted]"

// RedactFor returns the outcome, which is JSON, as a reader with these rights may see it
// (IDS-XV.4): values that the declaration hides from them are replaced by [Redacted], and the
// shape stays. If the outcome's shape doesn't fit a path, everything from that point on is
// hidden, because it may have the hidden value in another form. If the outcome isn't JSON, all
// of it is hidden, and ok is false.
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
	// The outcome may have duplicate members, and readers disagree on which of them counts, so
	// encode the text again.
	tree, err := argschema.Decode(outcome)
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

// hide replaces the values at a path, and values of a shape that doesn't fit the path. It
// descends into arrays even if the path doesn't say so.
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

// MayExecute reports whether a caller with these rights may run the command. The caller needs
// all declared rights; if there are none, everybody may.
func (e *Entry) MayExecute(rights []string) bool { return hasAll(rights, e.Rights.Execute) }

// MayRead reports whether a caller with these rights may see the outcome, like MayExecute.
func (e *Entry) MayRead(rights []string) bool { return hasAll(rights, e.Rights.Read) }

// MayAct reports whether a caller with these rights may act for another actor.
func (e *Entry) MayAct(rights []string) bool {
	return slices.ContainsFunc(e.Binding.Acting, func(r string) bool { return slices.Contains(rights, r) })
}

func hasAll(rights, needed []string) bool {
	return !slices.ContainsFunc(needed, func(r string) bool { return !slices.Contains(rights, r) })
}
