package ids

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// args normalises and checks the arguments, and returns the part that goes into the key.
func (d *Derivation) args() (json.RawMessage, error) {
	if err := d.checkText(); err != nil {
		return nil, err
	}
	tree, err := argsTree(d.Command.Args)
	if err != nil {
		return nil, err
	}
	if e := d.Entry; e != nil {
		if err := e.normalise(tree); err != nil {
			return nil, err
		}
		e.sortSets(tree)
		if d.Command.Args, err = write(tree); err != nil {
			return nil, err
		}
		if err := e.validate(tree); err != nil {
			return nil, err
		}
		for _, p := range e.Args.Strip {
			d.strip(tree, p)
		}
	}
	if err := d.ephemerals(tree); err != nil {
		return nil, err
	}
	if d.Entry != nil {
		d.Entry.sortSets(tree) // items that differed only by stripped values may be equal now
	}
	return write(tree)
}

// checkText refuses text that [ParseCommand] would have refused, or that would change in the
// canonical form.
func (d *Derivation) checkText() error {
	c := &d.Command
	for path, s := range map[string]string{
		"tenant_id": c.TenantID, d.PrincipalMember: d.Principal, "intent.entity": c.Intent.Entity, "intent.action": c.Intent.Action,
	} {
		if s == "" {
			return &Error{Reason: ReasonEnvelope, Path: path, Message: "it is missing"}
		}
	}
	texts := append([]string{c.TenantID, d.Principal, c.Intent.Entity, c.Intent.Action, c.CommandKind}, c.Intent.Target.ids...)
	if slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) }) {
		return &Error{Reason: ReasonEnvelope, Message: "a member is not valid UTF-8"}
	}
	return nil
}

// argsTree reads the arguments into maps, slices and [json.Number].
func argsTree(text json.RawMessage) (map[string]any, error) {
	if len(text) == 0 {
		return map[string]any{}, nil
	}
	text, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return nil, &Error{Reason: ReasonEnvelope, Path: "args", Message: "no strict JSON", Err: err}
	}
	object, ok := jsonscan.Tree(text).(map[string]any)
	if !ok {
		return nil, &Error{Reason: ReasonEnvelope, Path: "args", Message: "it is " + kindOf(text) + ", not an object"}
	}
	if argschema.Bounded(object) != nil {
		return nil, &Error{Reason: ReasonArgs, Path: "args", Message: "a number has too many digits or too large an exponent"}
	}
	return object, nil
}

// write returns the canonical form of a tree.
func write(tree any) (json.RawMessage, error) {
	text, err := json.Marshal(tree)
	if err == nil {
		text, err = canon.Canonicalize(text, canon.Exact)
	}
	if err != nil {
		return nil, &Error{Reason: ReasonArgs, Path: "args", Message: "they have no JSON form", Err: err}
	}
	return text, nil
}

// strip removes the values at a path from the arguments that go into the key.
func (d *Derivation) strip(tree map[string]any, p Path) {
	steps, _ := p.steps() // Load has checked it
	found := false
	_, _, _ = change(tree, steps, func(_ any, present bool) (any, bool, error) {
		found = found || present
		return nil, false, nil
	})
	if found {
		d.Stripped = append(d.Stripped, Stripped{"args." + string(p), "the registry strips it"})
	}
}

// ephemerals looks for arguments with the names of ephemeral values. Without a declaration they
// are stripped. A declaration must mention them: a guess might turn one command into two, or
// two into one.
func (d *Derivation) ephemerals(tree map[string]any) error {
	reported := map[string]bool{}
	return walk(tree, "", func(path, name string) (bool, error) {
		what, is := ephemeral(name)
		kept := func(k Kept) bool { return string(k.Path) == path }
		switch {
		case !is || d.Entry != nil && slices.ContainsFunc(d.Entry.Args.Keep, kept):
			return false, nil
		case d.Entry != nil:
			return false, &Error{Reason: ReasonEphemeral, Path: brief("args." + path), Message: "by its name it is " + what + ", and the registry neither strips nor keeps it"}
		}
		if !reported[path] {
			reported[path] = true
			d.Stripped = append(d.Stripped, Stripped{"args." + path, "by its name it is " + what})
		}
		return true, nil
	})
}

// validate checks normalised arguments against the schema. The error names members
// and rules, but no values.
func (e *Entry) validate(tree map[string]any) error {
	if e.schema == nil {
		return nil
	}
	var errs []error
	for _, f := range e.schema.Check(tree) {
		if f.Keyword == "additionalProperties" && len(f.Names) > 0 { // a client chose these names
			f.Message = "has members that the schema does not know: " + brief(strings.Join(f.Names, ", "))
		}
		errs = append(errs, &Error{Reason: ReasonArgs, Path: brief(pointer(f.Path)), Message: "it " + f.Message})
	}
	return oneOrAll(errs)
}

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
