package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/semelhq/semel/internal/rig/clause"
	"pgregory.net/rapid"
)

// tree is a JSON value that can be written in many ways: a string, a
// decimalNumber, a literal, or what holds others.
type tree struct {
	literal string
	text    *string
	number  *decimalNumber
	array   []tree
	object  []namedTree
	kind    string
}

type namedTree struct {
	name  string
	value tree
}

func drawText(t *rapid.T) string {
	return rapid.StringOfN(rapid.OneOf(
		rapid.RuneFrom([]rune("ab1\"\\/\b\n\x00\x1f\x7f")),
		rapid.RuneFrom([]rune("\u0080é€\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff")),
		rapid.Rune(),
	), 0, 12, -1).Draw(t, "text")
}

func drawTree(t *rapid.T, depth int) tree {
	kinds := []string{"literal", "text", "number", "array", "object", "object"}
	if depth == 0 {
		kinds = kinds[:3]
	}
	v := tree{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch v.kind {
	case "literal":
		v.literal = rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
	case "text":
		v.text = new(drawText(t))
	case "number":
		v.number = new(drawDecimal(t, 100))
	case "array":
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			v.array = append(v.array, drawTree(t, depth-1))
		}
	case "object":
		taken := map[string]bool{}
		for range rapid.IntRange(0, 16).Draw(t, "members") {
			name := drawText(t)
			if !taken[name] {
				taken[name] = true
				v.object = append(v.object, namedTree{name, drawTree(t, depth/2)})
			}
		}
	}
	return v
}

// spell writes v with white space, escapes, numbers and member order as drawn.
func (v tree) spell(t *rapid.T, b *strings.Builder) {
	space := func() {
		b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"}).Draw(t, "space"))
	}
	space()
	switch v.kind {
	case "literal":
		b.WriteString(v.literal)
	case "text":
		spellText(t, b, *v.text)
	case "number":
		b.WriteString(v.number.spell(t))
	case "array":
		b.WriteByte('[')
		for i, e := range v.array {
			if i > 0 {
				b.WriteByte(',')
			}
			e.spell(t, b)
		}
		space()
		b.WriteByte(']')
	case "object":
		b.WriteByte('{')
		space()
		for i, m := range rapid.Permutation(v.object).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
				space()
			}
			spellText(t, b, m.name)
			space()
			b.WriteByte(':')
			m.value.spell(t, b)
		}
		b.WriteByte('}')
	}
	space()
}

func spellText(t *rapid.T, b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch how := rapid.IntRange(0, 2).Draw(t, "escape"); {
		case how == 0 && short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\/bfnrt`[short])
		case how == 1 || r < ' ' || r == '"' || r == '\\':
			format := rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "hex")
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, format, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func drawSpelling(t *rapid.T, v tree) string {
	var b strings.Builder
	v.spell(t, &b)
	return b.String()
}

func TestAllSpellingsOfAValueHaveOneCanonicalForm(t *testing.T) {
	clause.Proves(t, "IDS-VII.3")
	rapid.Check(t, func(t *rapid.T) {
		v := drawTree(t, 3)
		a, b := drawSpelling(t, v), drawSpelling(t, v)
		for _, mode := range []Mode{JCS, Exact} {
			if x, y := mustCanonicalize(t, a, mode), mustCanonicalize(t, b, mode); x != y {
				t.Fatalf("mode %d: %q became %q,\n%q became %q", mode, a, x, b, y)
			}
		}
	})
}

func TestTheCanonicalFormOfACanonicalFormIsItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawSpelling(t, drawTree(t, 3))
		for _, mode := range []Mode{JCS, Exact} {
			once := mustCanonicalize(t, in, mode)
			if twice := mustCanonicalize(t, once, mode); twice != once {
				t.Fatalf("mode %d: %q became %q", mode, once, twice)
			}
			// JCS forgets what Exact keeps, so it may come after Exact.
			if exact := mustCanonicalize(t, in, Exact); mustCanonicalize(t, exact, JCS) != mustCanonicalize(t, in, JCS) {
				t.Fatalf("%q differs in JCS after Exact", in)
			}
		}
	})
}

func TestTheCanonicalFormMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawSpelling(t, drawTree(t, 3))
		var want any
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatalf("encoding/json can't read %q: %v", in, err)
		}
		for _, mode := range []Mode{JCS, Exact} {
			out := mustCanonicalize(t, in, mode)
			var got any
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("encoding/json can't read %q: %v", out, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("mode %d: %q became %q", mode, in, out)
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(out)); err != nil || compact.String() != out {
				t.Fatalf("mode %d: %q holds white space", mode, out)
			}
		}
	})
}

func TestNamesSortByUTF16CodeUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Names that share long beginnings make the comparison look far.
		beginning := drawText(t)
		a, b := beginning+drawText(t), beginning+drawText(t)
		x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
		want := 0
		for i := 0; want == 0 && (i < len(x) || i < len(y)); i++ {
			switch {
			case i == len(x) || i < len(y) && x[i] < y[i]:
				want = -1
			case i == len(y) || x[i] > y[i]:
				want = 1
			}
		}
		if got := compareUTF16([]byte(a), []byte(b)); got != want {
			t.Fatalf("%q and %q compare as %d, want %d", a, b, got, want)
		}
		p := &parser{names: []byte(a + b)}
		m := member{name: unescaped, nameLen: uint32(len(a)), prefix: sortPrefix([]byte(a))}
		n := member{name: unescaped | uint32(len(a)), nameLen: uint32(len(b)), prefix: sortPrefix([]byte(b))}
		if got := p.compareNames(&m, &n); got != want {
			t.Fatalf("members %q and %q compare as %d, want %d", a, b, got, want)
		}
	})
}

func TestAppendStringWritesWhatTheReaderReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawText(t)
		got, err := AppendString(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		spellText(t, &b, s)
		if want := mustCanonicalize(t, b.String(), JCS); string(got) != want {
			t.Fatalf("%q became %s, want %s", s, got, want)
		}
	})
}
