package commerce

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/keytemplate"
)

// Key is the key of an operation together with the scope that it is unique in.
type Key struct {
	// Text is the key, as it may also be sent to others in an Idempotency-Key header.
	Text string
	// Scope is the scope, such as session=s1.
	Scope string
}

// Name writes the key and its scope into a call. A scope that the call has already stays
// part of it.
func (k Key) Name(call *semel.Call) {
	call.Key = k.Text
	if call.Scope != "" {
		call.Scope += "&" + k.Scope
	} else {
		call.Scope = k.Scope
	}
	call.Scope = keytemplate.FitScope(call.Scope)
}

// Values are the values of the fields of a format, by name.
type Values = map[string]string

// Key makes a key: each field is replaced by its value, in which everything but letters,
// digits and "-._~" is percent-encoded, so that different values never make the same key.
// The error names everything that is wrong: a value that is missing or empty, one that has
// no field, a key of more than 255 bytes, and what the linter refuses in a format of your
// own, such as a time of now.
func (f Format) Key(values Values) (Key, error) {
	t, err := keytemplate.New(f.Template, f.ScopeField)
	if err != nil {
		return Key{}, fmt.Errorf("commerce: format %s: %w", f.Name, err)
	}
	text, err := t.Fill(values)
	if err != nil {
		return Key{}, fmt.Errorf("commerce: %s: %w", f.Name, err)
	}
	return Key{Text: text, Scope: keytemplate.FitScope(keytemplate.AppendScope("", f.Scope, values[f.ScopeField]))}, nil
}

// Line is one line of a cart.
type Line struct {
	Variant  string `json:"variant"`
	Quantity int64  `json:"quantity"`
	// Price is decimal text, such as "9.99". Text that differs is another price: always
	// write it in the same form.
	Price string `json:"price"`
}

// MaxLines bounds the lines of a cart.
const MaxLines = keytemplate.MaxCartLines

// CartHash digests a cart for [CartMandate] (MAP-CART.1). The order of the lines doesn't
// matter. Each is digested as a whole, its members preceded by their lengths, so two carts
// with swapped quantities differ. The error says that a cart is empty or has more than
// [MaxLines], or which line lacks something.
func CartHash(lines []Line) (string, error) {
	if len(lines) > MaxLines {
		return "", fmt.Errorf("commerce: the cart has %d lines, more than %d", len(lines), MaxLines)
	}
	var items bytes.Buffer
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			return "", fmt.Errorf("commerce: %w", err)
		}
		items.Write(text)
	}
	hash, err := keytemplate.CartHash(&items)
	if err != nil {
		return "", fmt.Errorf("commerce: %w", err)
	}
	return hash, nil
}
