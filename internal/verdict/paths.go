package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/semelhq/semel/internal/selector"
)

// Compare says in which places refused payloads differ from the one of the call, as far as they are
// there to be compared.
func (v *Verdict) Compare(first []byte, refused [][]byte) {
	calls := []*Facts{{Payload: first}}
	for _, p := range refused {
		if p != nil { // it was kept
			calls = append(calls, &Facts{Payload: p})
		}
	}
	v.Differ, _ = paths(calls)
}

// maxPaths is how many places paths names; it counts the rest.
const maxPaths = 8

// paths names the places, as JSON Pointers, where the payloads of calls differ. It reports
// false if it can't tell: a payload isn't kept, isn't for the reader's eyes, or isn't JSON.
func paths(calls []*Facts) (where []string, compared bool) {
	at := map[string]bool{}
	var first any
	for i, f := range calls {
		v, ok := decoded(f.Payload)
		switch {
		case !ok:
			return nil, false
		case i == 0:
			first = v
		default:
			differ("", first, v, at)
		}
	}
	where = slices.Sorted(maps.Keys(at))
	if n := len(where) - maxPaths; n > 0 {
		where = append(where[:maxPaths], fmt.Sprintf("and %d more places", n))
	}
	return where, true
}

func decoded(payload []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber() // two large numbers may differ in their last digit
	err := d.Decode(&v)
	return v, err == nil && !d.More()
}

// differ notes the places where two values differ.
func differ(path string, a, b any, at map[string]bool) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			for name := range a {
				member(path, name, a, b, at)
			}
			for name := range b {
				if _, both := a[name]; !both {
					member(path, name, a, b, at)
				}
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				differ(path+"/"+strconv.Itoa(i), a[i], b[i], at)
			}
			return
		}
	}
	if path != "" && !reflect.DeepEqual(a, b) { // the whole value isn't a place
		at[path] = true
	}
}

func member(path, name string, a, b map[string]any, at map[string]bool) {
	va, hasA := a[name]
	vb, hasB := b[name]
	path += "/" + selector.Escape(name)
	if hasA != hasB {
		at[path] = true
		return
	}
	differ(path, va, vb, at)
}
