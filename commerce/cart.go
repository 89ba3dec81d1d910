package commerce

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/store"
)

// Cart is the subject of a cart mandate.
type Cart struct {
	// Currency is that of all prices: three capital letters, as ISO 4217 has them.
	Currency string
	// Lines are the cart's, in any order; at most [MaxLines].
	Lines []Line
}

// MaxCart bounds the JSON that [ParseCart] reads, in bytes.
const MaxCart = 4 << 20

var (
	currency = regexp.MustCompile(`^[A-Z]{3}$`)
	price    = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})(\.[0-9]{1,9})?$`)
)

// Hash checks the cart and digests it for [CartMandate], as [CartHash] does, with the
// currency behind each price: 19.90 USD. The error names the first line that is wrong.
func (c Cart) Hash() (string, error) {
	if !currency.MatchString(c.Currency) {
		return "", fmt.Errorf("commerce: the currency %.16q isn't three capital letters", c.Currency)
	}
	if len(c.Lines) > MaxLines {
		return "", fmt.Errorf("commerce: the cart has %d lines, more than %d", len(c.Lines), MaxLines)
	}
	lines := make([]Line, len(c.Lines))
	for i, l := range c.Lines {
		switch {
		case l.Variant == "" || len(l.Variant) > store.MaxNameLen || !store.ValidText(l.Variant):
			return "", fmt.Errorf("commerce: line %d: the variant has 1 to %d bytes of UTF-8 without NUL", i+1, store.MaxNameLen)
		case l.Quantity < 1:
			return "", fmt.Errorf("commerce: line %d: the quantity is %d, and at least 1", i+1, l.Quantity)
		case !price.MatchString(l.Price):
			return "", fmt.Errorf("commerce: line %d: the price %.32q isn't decimal text such as 19.90, with up to 18 digits before the point and 9 behind it", i+1, l.Price)
		}
		lines[i] = Line{l.Variant, l.Quantity, l.Price + " " + c.Currency}
	}
	return CartHash(lines)
}

// ParseCart reads a cart from JSON:
//
//	{"currency": "USD", "lines": [{"variant": "shirt-m", "quantity": 2, "price": "19.90"}]}
//
// Names are exact, and unknown ones are refused. Numbers keep their decimal digits, however
// many, and never become binary floating point; but a JSON number has no zeros at its end,
// so write prices as strings. A line may have a currency, and all must be the same.
func ParseCart(text []byte) (Cart, error) {
	cart, err := parseCart(text)
	if err != nil {
		return Cart{}, fmt.Errorf("commerce: the cart: %w", err)
	}
	return cart, nil
}

func parseCart(text []byte) (c Cart, err error) {
	if len(text) > MaxCart {
		return c, fmt.Errorf("it has more than %d bytes", MaxCart)
	}
	if text, err = canon.Canonicalize(text, canon.Exact); err != nil {
		return c, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return c, errors.New("it isn't a JSON object")
	}
	for name, raw := range members {
		switch name {
		case "currency":
			if err := json.Unmarshal(raw, &c.Currency); err != nil {
				return c, errors.New("the currency isn't a string")
			}
		case "lines":
		default:
			return c, fmt.Errorf("it has the member %.64q, and may have currency and lines", name)
		}
	}
	if raw := members["lines"]; len(raw) == 0 || raw[0] != '[' {
		return c, errors.New("the lines aren't a list")
	}
	for raw := range jsonscan.Items(members["lines"]) {
		if len(c.Lines) == MaxLines {
			return c, fmt.Errorf("it has more than %d lines", MaxLines)
		}
		l, err := c.parseLine(raw)
		if err != nil {
			return c, fmt.Errorf("line %d: %w", len(c.Lines)+1, err)
		}
		c.Lines = append(c.Lines, l)
	}
	return c, nil
}

// parseLine reads one line, and takes its currency as the cart's if that has none yet.
func (c *Cart) parseLine(raw []byte) (l Line, err error) {
	values, err := keytemplate.Values(raw)
	if err != nil {
		return l, errors.New("it isn't an object of strings and numbers")
	}
	for name, value := range values {
		switch name {
		case "variant":
			l.Variant = value
		case "price":
			l.Price = value
		case "quantity":
			if l.Quantity, err = strconv.ParseInt(value, 10, 64); err != nil {
				return l, errors.New("the quantity isn't a whole number below 2^63")
			}
		case "currency":
			if c.Currency == "" {
				c.Currency = value
			}
			if value != c.Currency {
				return l, fmt.Errorf("its currency is %.16q, and that of the cart %.16q", value, c.Currency)
			}
		default:
			return l, fmt.Errorf("it has the member %.64q, and may have variant, quantity, price and currency", name)
		}
	}
	return l, nil
}
