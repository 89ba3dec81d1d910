package keytemplate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// Fill makes the key: it replaces every field by its encoded value. It reports all problems at
// once: a missing or empty value, one without a field, and a key longer than [MaxKeyLen].
func (t *Template) Fill(values map[string]string) (string, error) {
	var errs []error
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.literal)
		} else {
			encode(&b, values[p.name])
		}
	}
	fields := t.Fields()
	for _, name := range fields {
		if v, ok := values[name]; !ok {
			errs = append(errs, fmt.Errorf("no value for {%s}", name))
		} else if v == "" {
			errs = append(errs, fmt.Errorf("the value for {%s} is empty", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(fields, name) {
			errs = append(errs, fmt.Errorf("there is no field {%s} in %s", name, t.text))
		}
	}
	if b.Len() > MaxKeyLen {
		errs = append(errs, fmt.Errorf("the key has %d bytes, more than %d: use a digest in place of the longest value", b.Len(), MaxKeyLen))
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return b.String(), nil
}

// encode writes a value so that it can't contain a separator of fields.
func encode(b *strings.Builder, value string) {
	const hex = "0123456789ABCDEF"
	for i := range len(value) {
		if c := value[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
}

// Values reads the values of a template from a JSON object. Strings are used as they
// are, numbers as their exact canonical text (2999, 2999.0 and 2.999e3 are one value),
// true and false by name. Anything else is refused, because it has no unique text.
func Values(text []byte) (map[string]string, error) {
	canonical, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil || members == nil {
		return nil, errors.New("the values are not a JSON object")
	}
	values := make(map[string]string, len(members))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if v, ok := valueText(members[name]); ok {
			values[name] = v
		} else {
			errs = append(errs, fmt.Errorf("the value for {%s} is %s, not a string, a number, true or false", name, members[name]))
		}
	}
	return values, errors.Join(errs...)
}

// valueText returns the text of one canonical JSON value.
func valueText(v json.RawMessage) (string, bool) {
	switch {
	case v[0] == '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err == nil
	case v[0] == '{', v[0] == '[', bytes.Equal(v, []byte("null")):
		return "", false
	}
	return string(v), true
}
