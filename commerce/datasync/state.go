package datasync

import (
	"fmt"
	"slices"
)

// Rule says how changes of an entity are merged.
type Rule string

// The rules; see the package.
const (
	LastWriteWins Rule = "last_write_wins"
	AppendOnly    Rule = "append_only"
)

// Outcome is what a received change meant.
type Outcome string

// The outcomes.
const (
	// Applied: it is the state now.
	Applied Outcome = "applied"
	// Duplicate: it was there already.
	Duplicate Outcome = "duplicate"
	// Superseded: a change that wins against it was there already.
	Superseded Outcome = "superseded"
	// Contested: its version was there with other content. The state holds both until somebody
	// decides.
	Contested Outcome = "contested"
	// Echo: it is a change of this side that came back.
	Echo Outcome = "echo"
)

// State is a side's state of an entity, or of one version of an AppendOnly entity.
type State struct {
	Ref `json:"-"`
	// Version is the highest version that this side has seen, which the other side may not
	// have if that change has lost before it was sent; for AppendOnly the one it is about.
	Version int64 `json:"version"`
	// Sequence rises with every state of the entity, or version, on this side.
	Sequence int64 `json:"sequence"`
	// Changes has the change that has won; for AppendOnly what arrived first, followed by
	// other contents of the version, which are contested, in the order of arrival.
	Changes []Change `json:"changes"`
	// Unsent: there is a change of this side that the other may not have.
	Unsent bool `json:"unsent,omitempty"`
}

// maxContents bounds the different contents of one version.
const maxContents = 8

// Contested reports whether the version has different contents.
func (s *State) Contested() bool { return len(s.Changes) > 1 }

// merge adds a change of the side own or of the other one.
func (s *State) merge(rule Rule, c Change, own string) (Outcome, error) {
	switch {
	case len(s.Changes) == 0:
		s.Changes = []Change{c}
	case rule == LastWriteWins:
		order := compare(&c, &s.Changes[0])
		if order <= 0 {
			s.Version = max(s.Version, c.Version) // so that the next version is new to both sides
			if order == 0 {
				return Duplicate, nil
			}
			return Superseded, nil
		}
		s.Changes = []Change{c}
	case s.find(c.Content) >= 0:
		return Duplicate, nil
	case len(s.Changes) >= maxContents:
		return "", fmt.Errorf("%w: %d", ErrFull, len(s.Changes))
	default:
		s.Changes = append(s.Changes, c)
	}
	s.Version = max(s.Version, c.Version)
	s.Sequence++
	s.Unsent = s.Unsent || c.Origin == own
	if s.Contested() {
		return Contested, nil
	}
	return Applied, nil
}

// find is the index of the change with this content, or -1.
func (s *State) find(content []byte) int {
	return slices.IndexFunc(s.Changes, func(c Change) bool { return c.says(content) })
}
