package ids

import (
	"encoding/json"
	"slices"
)

// Redacted stands for what a reader may not see.
const Redacted = "[redacted]"

// RedactFor is the outcome as a reader with these rights may see it (IDS-XV.4): what
// the declaration hides from him is replaced by [Redacted], so that the shape stays.
// Nothing but JSON can be looked into: where there is something to hide in anything
// else, ok is false and all of it is hidden.
func (e *Entry) RedactFor(outcome []byte, rights []string) (shown []byte, ok bool) {
	var hidden []Path
	for _, r := range e.Redact {
		if r.Unless == "" || !slices.Contains(rights, r.Unless) {
			hidden = append(hidden, r.Path)
		}
	}
	if len(hidden) == 0 || len(outcome) == 0 {
		return outcome, true
	}
	// A reader that takes the last of two members and this one would see different
	// things, so the text that is shown is written anew.
	tree, err := decode(outcome)
	if err != nil {
		return nil, false
	}
	for _, p := range hidden {
		steps, _ := p.steps() // Load has checked it
		if tree, err = change(tree, steps, func(_ any, present bool) (any, bool, error) { return Redacted, present, nil }); err != nil {
			return nil, false
		}
	}
	shown, err = json.Marshal(tree)
	return shown, err == nil
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
