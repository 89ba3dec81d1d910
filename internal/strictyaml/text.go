package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// ValueError is a text that isn't a valid value.
type ValueError struct {
	// Message describes the error. Hint says what to write instead, and may be empty.
	Message, Hint string
}

// Error returns the message.
func (e *ValueError) Error() string { return e.Message }

// SetText sets a scalar, or a list of scalars from comma-separated items. [Report.Check]
// reports whether the value is allowed. An error is a [ValueError].
func SetText(v reflect.Value, f Field, text string) error {
	if v.Kind() == reflect.Slice {
		var items []string
		if text != "" {
			items = strings.Split(text, ",")
		}
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			if err := SetText(list.Index(i), f, strings.TrimSpace(item)); err != nil {
				return err
			}
		}
		v.Set(list)
		return nil
	}
	quoted := strconv.Quote(text)
	if f.Secret != "" {
		quoted = "the value"
	}
	switch {
	case v.Type() == durationType:
		d, err := ParseDuration(text)
		if err != nil {
			return &ValueError{fmt.Sprintf("%s %v", quoted, err), durationHint(text, err)}
		}
		v.SetInt(int64(d))
	case v.Type() == sizeType:
		s, err := ParseSize(text)
		if err != nil {
			return &ValueError{fmt.Sprintf("%s %v", quoted, err), sizeHint(text, err)}
		}
		v.SetInt(int64(s))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return &ValueError{quoted + " is not a whole number", "write digits, such as 1000"}
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x-x != 0 { // infinite or NaN
			return &ValueError{quoted + " is not a number", "write a number, such as 5 or 0.5"}
		}
		v.SetFloat(x)
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return &ValueError{quoted + " is neither true nor false", boolHint(text)}
		}
		v.SetBool(text == "true")
	default:
		return &ValueError{"has a type that can't be set", ""}
	}
	return nil
}

// TextOf returns the text that [SetText] reads as the value.
func TextOf(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		var items []string
		for i := range v.Len() {
			items = append(items, TextOf(v.Index(i)))
		}
		return strings.Join(items, ",")
	}
	return fmt.Sprint(v.Interface())
}

func durationHint(text string, err error) string {
	if errors.Is(err, errRange) {
		return ""
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && text != "" {
		return "a duration needs a unit: write " + strings.TrimSuffix(text, ".0") + "s for seconds"
	}
	return "write a number with a unit, such as 500ms, 30s, 5m, 2h or 7d"
}

func sizeHint(text string, err error) string {
	if errors.Is(err, errRange) {
		return ""
	}
	for _, u := range sizeUnits {
		if n := len(text) - len(u.name); n > 0 && strings.EqualFold(text[n:], u.name) {
			if _, err := strconv.ParseInt(strings.TrimSpace(text[:n]), 10, 64); err == nil {
				return "write " + strings.TrimSpace(text[:n]) + u.name
			}
		}
	}
	return "write bytes, or a whole number with a unit, such as 256KiB or 1MB"
}

func boolHint(text string) string {
	switch strings.ToLower(text) {
	case "yes", "on", "y", "1", "true":
		return "write true"
	case "no", "off", "n", "0", "false":
		return "write false"
	}
	return "write true or false"
}
