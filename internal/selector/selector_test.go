package selector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/keytemplate"
)

func TestParse(t *testing.T) {
	all := []Source{Header, Query, Form, JSON, Hash, Cart, Answer}
	for _, test := range []struct{ text, want string }{
		{"header:idempotency-key", ""},
		{"json:/a~1b/~0/0", ""},
		{"hash:", ""},
		{"key", `"key" doesn't say where the value is: it begins with one of header:, query:, form:, json:, hash:, cart:, answer:`},
		{"body:/id", `"body:/id" doesn't say where the value is: it begins with one of header:, query:, form:, json:, hash:, cart:, answer:`},
		{"header:a b", `"header:a b" doesn't name a header`},
		{"header:", `"header:" doesn't name a header`},
		{"query:", `"query:" names no parameter`},
		{"json:id", `the JSON pointer "id" doesn't begin with a slash: write /id`},
		{"json:", `"json:" is the whole body: write a pointer to one value, such as json:/id`},
		{"json:/a~2", `the JSON pointer "/a~2" has a ~ that is neither ~0 nor ~1`},
		{"json:/\xff", "the JSON pointer isn't valid UTF-8"},
		{"json:" + strings.Repeat("/a", 33), "the JSON pointer has more than 512 bytes or 32 steps"},
	} {
		t.Run("the text "+test.text, func(t *testing.T) {
			s, err := Parse(test.text, all)
			if err == nil && s.String() != test.text {
				t.Error(s)
			}
			if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if _, err := Parse("answer:/id", Keys); err == nil {
		t.Error("a key comes from an answer")
	}
}

// What is found in a document as it was sent is what is found in its canonical form.
func TestRawAndCanonicalAgree(t *testing.T) {
	const members = `"id":"a\"b","n":12.50,"t":true,"none":null,"o":{"é":[1,"x ,]}",{"y":"z"}],"e":{}},"l":[],"last":7`
	for _, raw := range []string{
		"{" + members + "}", " {" + members + "} ",
		"\r\n{ " + strings.NewReplacer(`":`, "\" \t:\n ", `,"`, "\n,\t \"", "[1", "[ 1 ", "{}", "{ }", "[]", "[\n]", "}]", " } ] ").Replace(members) + "\n}",
	} {
		doc, err := canon.Canonicalize([]byte(raw), canon.Exact)
		if err != nil {
			t.Fatal(err)
		}
		for _, pointer := range []string{"/id", "/n", "/t", "/none", "/o/é/0", "/o/é/1", "/o/é/2/y", "/o/é/3", "/o/e/x", "/l/0", "/last", "/gone", "/n/x"} {
			s, err := Parse("json:"+pointer, Keys)
			if err != nil {
				t.Fatal(err)
			}
			want, there, wrong := s.Find(&Input{JSON: doc})
			got, found, err := s.Find(&Input{JSON: []byte(raw), Raw: true})
			if got != want || found != there || !errors.Is(err, wrong) {
				t.Errorf("%s of %q: %q, %t, %v; of its canonical form %q, %t, %v", pointer, raw, got, found, err, want, there, wrong)
			}
		}
	}
}

func TestFind(t *testing.T) {
	doc, err := canon.Canonicalize([]byte(`{"id":"a\"b","n":12345678901234567890.10,"t":true,"none":null,"o":{"é<>":[1,"x",{"y":"z"}]},"empty":"","a/b":{"~":"tilde"},
		"cart":[{"variant":"B","quantity":1,"price":"2"},{"variant":"A","quantity":1,"price":"2"}],"same":[{"variant":"A","quantity":1,"price":2},{"variant":"B","quantity":1,"price":"2"}]}`), canon.Exact)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Header: http.Header{"X-One": {"1"}, "X-Two": {"1", "1"}, "X-Empty": {""}},
		Query:  "a=1&b=2&b=3&c%20d=%zz&e=f%2Bg", Form: []byte("k=v+w&&k2=&k3"), JSON: doc,
	}
	for _, test := range []struct {
		text, want string
		err        error
	}{
		{"header:x-one", "1", nil},
		{"header:x-two", "", ErrTwice},
		{"header:x-empty", "", nil},
		{"header:x-none", "", nil},
		{"query:a", "1", nil},
		{"query:b", "", ErrTwice},
		{"query:c d", "", ErrForm},
		{"query:e", "f+g", nil},
		{"form:k", "v w", nil},
		{"form:k2", "", nil},
		{"form:k3", "", nil},
		{"json:/id", `a"b`, nil},
		{"json:/n", "12345678901234567890.1", nil},
		{"json:/t", "", ErrKind},
		{"json:/o", "", ErrKind},
		{"json:/none", "", nil},
		{"json:/empty", "", nil},
		{"json:/o/é<>/1", "x", nil},
		{"json:/o/é<>/2/y", "z", nil},
		{"json:/o/é<>/3", "", nil},
		{"json:/o/é<>/01", "", nil},
		{"json:/id/0", "", nil},
		{"json:/a~1b/~0", "tilde", nil},
		{"hash:/o/é<>/1", "", nil},
	} {
		t.Run("the selector "+test.text, func(t *testing.T) {
			s, err := Parse(test.text, []Source{Header, Query, Form, JSON, Hash})
			if err != nil {
				t.Fatal(err)
			}
			got, found, err := s.Find(&in)
			if s.Source == Hash {
				if len(got) != 64 || !found || err != nil {
					t.Errorf("%q, %v, %v", got, found, err)
				}
				return
			}
			if got != test.want && test.err == nil || err != test.err || found != (test.want != "" && test.err == nil) {
				t.Errorf("%q, %v, %v; want %q, %v", got, found, err, test.want, test.err)
			}
		})
	}
	t.Run("a cart's hash doesn't depend on the order of its items", func(t *testing.T) {
		cart, _ := Parse("cart:/cart", Values)
		same, _ := Parse("cart:/same", Values)
		one, ok, err := cart.Find(&in)
		other, _, err2 := same.Find(&in)
		if !ok || err != nil || err2 != nil || one != other {
			t.Errorf("%q and %q: %v, %v", one, other, err, err2)
		}
		object, _ := Parse("cart:/o", Values)
		if _, found, err := object.Find(&in); found || err == nil {
			t.Error("an object is a cart")
		}
	})
}

// drawJSON draws a value whose names and indexes are few, so that pointers hit.
func drawJSON(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"", "a", "\"\\{", "},]", "é\n"}).Draw(t, "text")
	case 1:
		return rapid.IntRange(-5, 1000).Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawJSON(t, depth-1))
		}
		return append([]any{}, list...)
	}
	object := map[string]any{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), func(s string) string { return s }).Draw(t, "names") {
		object[name] = drawJSON(t, depth-1)
	}
	return object
}

var names = []string{"a", "0", "1", "b/c", "~", "\"", "é"}

// lookUp follows steps in a decoded value, as encoding/json has it.
func lookUp(v any, steps []string) (any, bool) {
	for _, step := range steps {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) || strconv.Itoa(i) != step {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// TestPointersAgreeWithADecoder compares following and cutting with the same in decoded values.
func TestPointersAgreeWithADecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawJSON(t, 3)
		steps := rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(t, "steps")
		var text strings.Builder
		for _, step := range steps {
			text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
		}
		p, err := ParsePointer(text.String())
		if err != nil {
			t.Fatal(err)
		}
		doc := canonical(t, v)
		want, there := lookUp(v, steps)
		at, ok := p.find(doc, true)
		if ok != there || ok && string(doc[at.from:at.to]) != string(canonical(t, want)) {
			t.Fatalf("%s in %s: %v, want %v", text.String(), doc, ok, there)
		}
		cut := p.cut(bytes.Clone(doc))
		if there {
			switch parent, _ := lookUp(v, steps[:len(steps)-1]); parent := parent.(type) {
			case map[string]any:
				delete(parent, steps[len(steps)-1])
			case []any:
				i, _ := strconv.Atoi(steps[len(steps)-1])
				parent[i] = nil
			}
		}
		if string(cut) != string(canonical(t, v)) {
			t.Fatalf("%s without %s is %s", doc, text.String(), cut)
		}
	})
}

func TestRestate(t *testing.T) {
	cart, err := keytemplate.CartHash(strings.NewReader(`{"variant":"A","quantity":1,"price":2}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ doc, want string }{
		{`{"n":1.50,"s":"<\u00e9>","o":{},"t":true,"z":null,"e":""}`, `{"e":"","n":"1.5","o":{},"s":"<é>","t":true,"z":null}`},
		{`{"l":[{"variant":"A","quantity":1,"price":2}]}`, `{"l":"` + cart + `"}`},
		{`{}`, `{}`},
	} {
		var list []Selector
		for _, text := range []string{"json:/l/0/variant", "cart:/l", "json:/n", "json:/s", "json:/o", "json:/t", "json:/z", "json:/e", "json:/none", "json:/n"} {
			s, err := Parse(text, Values)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		doc, err := canon.Canonicalize([]byte(c.doc), canon.Exact)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(Restate(doc, list)); got != c.want {
			t.Errorf("%s became %s, want %s", c.doc, got, c.want)
		}
	}
}

func canonical(t *rapid.T, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestSet(t *testing.T) {
	if s, err := ParseSet(nil, nil); s != nil || err != nil {
		t.Error("no pointers make a set")
	}
	for _, lists := range [][2][]string{{{""}, nil}, {nil, {"a"}}, {make([]string, 33), nil}} {
		if _, err := ParseSet(lists[0], lists[1]); err == nil {
			t.Errorf("%q is accepted", lists)
		}
	}
	digest := func(only, ignore []string, text string) string {
		s, err := ParseSet(only, ignore)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := canon.Canonicalize([]byte(text), canon.Exact)
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Append(s.AppendFrame(nil), doc))
	}
	for _, test := range []struct {
		name string
		a, b string
		same bool
	}{
		{"what is ignored doesn't count", digest(nil, []string{"/t", "/m/id"}, `{"t":1,"a":1,"m":{"id":1,"x":2}}`), digest(nil, []string{"/m/id", "/t", "/t"}, `{"a":1,"m":{"x":2},"t":5}`), true},
		{"what isn't ignored does", digest(nil, []string{"/t"}, `{"t":1,"a":1}`), digest(nil, []string{"/t"}, `{"t":1,"a":2}`), false},
		{"only what is named counts", digest([]string{"/a", "/b"}, nil, `{"a":1,"c":2}`), digest([]string{"/b", "/a"}, nil, `{"a":1,"c":3}`), true},
		{"null is not absent", digest([]string{"/a", "/b"}, nil, `{"a":null}`), digest([]string{"/a", "/b"}, nil, `{}`), false},
		{"a value can't move to another place", digest([]string{"/a", "/b"}, nil, `{"a":1}`), digest([]string{"/a", "/b"}, nil, `{"b":1}`), false},
		{"ignored within what is named", digest([]string{"/a"}, []string{"/a/t"}, `{"a":{"t":1}}`), digest([]string{"/a"}, []string{"/a/t"}, `{"a":{}}`), true},
		{"two sets never match", digest(nil, []string{"/x"}, `{"a":1}`), digest(nil, []string{"/y"}, `{"a":1}`), false},
		{"only and ignore of one place never match", digest([]string{"/a"}, nil, `{"a":1}`), digest(nil, []string{"/a"}, `{"a":1}`), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if (test.a == test.b) != test.same {
				t.Errorf("%q and %q", test.a, test.b)
			}
		})
	}
}
