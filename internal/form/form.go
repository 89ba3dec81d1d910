// Package form reads the JSON that programs keep: values of cells, and of messages to
// themselves. A form has a number, which a value says in its member "form", and doesn't say
// while it is 1. So a program tells what a newer one has kept from what is damaged, and leaves it
// alone, instead of writing it back without what it doesn't know.
//
// A member that is added, or that means something else, takes a new number, and a recorded
// file in testdata: see the test of all forms.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

var (
	// ErrNewer is returned, wrapped, for a value of a newer program.
	ErrNewer = errors.New("a newer program has kept it: use that one, or a later one")
	// ErrDamaged is returned, wrapped, for what isn't a value of any program.
	ErrDamaged = errors.New("it isn't what a program keeps")
)

// Read reads a value of a form up to newest into v. If there is an error, v has no meaning.
func Read[T any](data []byte, newest int, v *T) error {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	err := strict.Decode(v)
	if err == nil && len(bytes.TrimSpace(data[strict.InputOffset():])) > 0 {
		return ErrDamaged
	}
	if err == nil && newest == 1 {
		return nil // it doesn't say its form, which would be a member that nobody knows
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
