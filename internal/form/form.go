// Package form reads JSON that programs store for themselves: values of cells, and of messages.
// A form has a number, which a value has in its member "form" unless it is 1. So a program can
// tell a newer program's value from a damaged one, and leave it alone instead of writing it
// back without the parts that it doesn't know.
//
// If you add a member, or change its meaning, take a new number, and add a recorded file in
// testdata: see the test of all forms.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

var (
	// ErrNewer is returned, wrapped, for a newer program's value.
	ErrNewer = errors.New("a newer program has kept it: use that one, or a later one")
	// ErrDamaged is returned, wrapped, for something that no program has written.
	ErrDamaged = errors.New("it isn't what a program keeps")
)

// Read reads a value of a form up to newest into v. If there is an error, ignore v.
func Read[T any](data []byte, newest int, v *T) error {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	err := strict.Decode(v)
	if err == nil && len(bytes.TrimSpace(data[strict.InputOffset():])) > 0 {
		return ErrDamaged
	}
	if err == nil && newest == 1 {
		return nil // it has no form, or not as its own member
	}
	var says struct {
		Form int `json:"form"`
	}
	switch lenient := json.Unmarshal(data, &says); {
	case lenient == nil && says.Form > newest:
		return fmt.Errorf("%w (form %d, known up to %d)", ErrNewer, says.Form, newest)
	case err == nil:
		return nil
	case json.Unmarshal(data, new(T)) == nil:
		return fmt.Errorf("%w (%w)", ErrNewer, err)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
