package keytemplate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/semelhq/semel/internal/canon"
)

// MaxCartLines bounds the items of a cart, which are sorted in memory.
const MaxCartLines = 10_000

// CartHash digests the items of a cart, given as JSON values one after another,
// each an object with the members variant, quantity and price. Each item is one
// length-framed tuple and the tuples are sorted as a whole, so the order of the
// items doesn't matter, while {A:1, B:2} and {A:2, B:1} differ (MAP-CART.1). Numbers are
// compared as decimal text, never as binary64: 10, 10.0 and "10" are one price. The
// string "10.00" is another one, since strings aren't normalised.
//
// The hash is lower-case hexadecimal SHA-256. A cart with more than [MaxCartLines] items
// is refused.
func CartHash(items io.Reader) (string, error) {
	var tuples [][]byte
	dec := json.NewDecoder(items)
	for {
		var text json.RawMessage
		if err := dec.Decode(&text); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("item %d: %w", len(tuples)+1, err)
		}
		if len(tuples) == MaxCartLines {
			return "", fmt.Errorf("the cart has more than %d items", MaxCartLines)
		}
		tuple, err := cartTuple(text)
		if err != nil {
			return "", fmt.Errorf("item %d: %w", len(tuples)+1, err)
		}
		tuples = append(tuples, tuple)
	}
	if len(tuples) == 0 {
		return "", errors.New("the cart is empty")
	}
	slices.SortFunc(tuples, bytes.Compare)
	b := []byte("semel-cart-1")
	for _, tuple := range tuples {
		b = canon.Frame(b, tuple)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

var cartMembers = []string{"variant", "quantity", "price"}

// cartTuple returns one item as length-framed variant, quantity and price.
func cartTuple(text []byte) ([]byte, error) {
	// Check for duplicate names first: the decoder below would take the last of two members
	// with the same name.
	canonical, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return nil, err
	}
	var item map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &item); err != nil || item == nil {
		return nil, errors.New("not a JSON object")
	}
	var errs []error
	var tuple []byte
	for _, name := range cartMembers {
		v, ok := item[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s is missing", name))
			continue
		}
		value, ok := valueText(v)
		if !ok || value == "" || value == "true" || value == "false" {
			errs = append(errs, fmt.Errorf("%s is %s, not a string or a number", name, v))
		}
		tuple = canon.Frame(tuple, []byte(value))
	}
	for _, name := range slices.Sorted(maps.Keys(item)) {
		if !slices.Contains(cartMembers, name) {
			errs = append(errs, fmt.Errorf("%s is not part of the hash: leave it out", name))
		}
	}
	return tuple, errors.Join(errs...)
}
