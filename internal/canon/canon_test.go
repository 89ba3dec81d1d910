package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// vectors are the six documents of RFC 8785's reference material, written anew
// in other member orders and spellings. What the specification publishes about
// each is the length and SHA-256 of its canonical form.
var vectors = []struct {
	name   string
	input  string
	length int
	sum    string
}{
	{
		name:   "arrays",
		input:  `[ 5.6e1 , {"1":[ ], "d" : true,` + "\r\n\t" + `"\u0031\u0030":null} ]`,
		length: 32,
		sum:    "099601b171cafed97c333f8878d68e7f8c8f795412adb34b2fdcf0e7c7beac42",
	},
	{
		name: "french",
		input: `{"sin":"ignore locale","p\u00eache":"but canonicalization MUST",
			"péché":"is wrong according to French","peach":"This sorting order"}`,
		length: 130,
		sum:    "d99d0ebdcb0033cb858cfa830ae46bc0fb3309413b271f1da828c89901a27ed5",
	},
	{
		name: "structures",
		input: `{"a":{},"111":[{"e":"yes","E":"no"}],"A":{},"10":{},"":"empty",
			"1":{"f":{"f":"hi","F":5.0},"\u000A":560e-1}}`,
		length: 98,
		sum:    "605f65004ec2db7692522a0852c22f1c989e036d547e88963d1a3143cf3195d5",
	},
	{
		name:   "unicode",
		input:  `{"Unnormalized\u0020Unicode":"` + "A\u030a" + `"}`,
		length: 30,
		sum:    "0d99aad92a125196ff887876643fd3206786a84ddce2cee52ba4ad256d2381d3",
	},
	{
		name: "values",
		input: `{"string":"€$\u000F\nA'B\"\\\u005C\"/",
			"numbers":[333333333.33333329,1e+30,45E-1,0.0020,1e-27],
			"literals":[null,true,false]}`,
		length: 118,
		sum:    "2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb",
	},
	{
		name: "weird",
		input: `{"\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
			"\uD83D\uDE02":"Smiley","\u0080":"Control\u007f","\n":"Newline",
			"\u20ac":"Euro Sign","<\/script>":"Browser Challenge","\r":"Carriage Return",
			"ö":"Latin Small Letter O With Diaeresis"}`,
		length: 214,
		sum:    "6af595a9aa80110b964b4de3f82a05fa6ae7423005019bacfa2620dddc4e94d1",
	},
}

func TestPublishedVectors(t *testing.T) {
	clause.Proves(t, "IDS-VII.3")
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			got, err := Canonicalize([]byte(v.input), JCS)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(got)
			if len(got) != v.length || hex.EncodeToString(sum[:]) != v.sum {
				t.Errorf("%d bytes, SHA-256 %x, want %d bytes, %s:\n%s", len(got), sum, v.length, v.sum, got)
			}
			again, err := Canonicalize(got, JCS)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("the canonical form changes when canonicalised: %s, %v", again, err)
			}
		})
	}
}

func TestCanonicalForm(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"white space around the value goes", " \t\r\n[ ]\n ", `[]`},
		{"array elements keep their order", `[3,2,1,"b","a"]`, `[3,2,1,"b","a"]`},
		{"members are sorted at every level", `{"b":[{"d":1,"c":2}],"a":{"z":{},"y":[]}}`, `{"a":{"y":[],"z":{}},"b":[{"c":2,"d":1}]}`},
		{"an object in order may hold one that is not", `{"a":{"c":1,"b":2},"d":3}`, `{"a":{"b":2,"c":1},"d":3}`},
		{"an object out of order may hold one in order", `{"d":3,"a":{"b":2,"c":1}}`, `{"a":{"b":2,"c":1},"d":3}`},
		{"a name sorts after its own prefix", `{"aa":1,"a":2,"":3}`, `{"":3,"a":2,"aa":1}`},
		{"names longer than a machine word sort by their tails", `{"customer_b":1,"customer_a":2,"customer":3}`, `{"customer":3,"customer_a":2,"customer_b":1}`},
		{"names sort unescaped", `{"\u0062":1,"a":2,"\n":3}`, `{"\n":3,"a":2,"b":1}`},
		{"zero bytes in names count", `{"a\u0000\u0000":1,"a\u0000":2,"a":3,"a\u0000b":4}`, `{"a":3,"a\u0000":2,"a\u0000\u0000":1,"a\u0000b":4}`},
		{
			"surrogates sort before U+E000 and U+FFFF", "{\"\uffff\":1,\"\ue000\":2,\"\U00010000\":3,\"\ud7ff\":4,\"\U0010ffff\":5}",
			"{\"\ud7ff\":4,\"\U00010000\":3,\"\U0010ffff\":5,\"\ue000\":2,\"\uffff\":1}",
		},
		{
			"they do so behind a long common beginning too", "{\"long beginning \ue000\":2,\"long beginning \U00010000\":3}",
			"{\"long beginning \U00010000\":3,\"long beginning \ue000\":2}",
		},
		{"escapes become the shortest", `"\u0022\u005c\u002f\/\u0008\u000c\u000a\u000d\u0009\u0001\u001F\u007f"`, `"\"\\//\b\f\n\r\t\u0001\u001f` + "\x7f" + `"`},
		{"escaped characters become themselves", `"\u00e9\u20AC\ud834\udd1e"`, "\"é€\U0001d11e\""},
		{"the replacement character is a character", `"\ufffd` + "\ufffd" + `"`, "\"\ufffd\ufffd\""},
		{"noncharacters and line separators stay", "\"\ufffe\u2028\"", "\"\ufffe\u2028\""},
		{"a scalar is a text", ` null `, `null`},
	}
	for _, c := range cases {
		for _, mode := range []Mode{JCS, Exact} {
			t.Run(fmt.Sprintf("%s, mode %d", c.name, mode), func(t *testing.T) {
				got, err := Canonicalize([]byte(c.in), mode)
				if err != nil || string(got) != c.want {
					t.Errorf("%s\nbecame %s, %v\nwant   %s", c.in, got, err, c.want)
				}
			})
		}
	}
}

func TestAppendExtendsItsDestination(t *testing.T) {
	t.Run("in place when there is room", func(t *testing.T) {
		dst := append(make([]byte, 0, 64), "key "...)
		got, err := Append(dst, []byte(`{"b":1,"a":2}`), JCS)
		if err != nil || string(got) != `key {"a":2,"b":1}` || &got[0] != &dst[0] {
			t.Errorf("got %s, %v", got, err)
		}
	})
	t.Run("and leaves it alone after an error", func(t *testing.T) {
		dst := []byte("key untouched")
		got, err := Append(dst[:4], []byte(`[1,2`), JCS)
		if err == nil || string(got) != "key " || string(dst) != "key untouched" {
			t.Errorf("got %s, %v, buffer %s", got, err, dst)
		}
	})
	t.Run("even where it overlaps the source", func(t *testing.T) {
		src := append(make([]byte, 0, 64), `{"b":1e20,"a":2}`...)
		got, err := Append(src[:0], src, JCS)
		if err != nil || string(got) != `{"a":2,"b":100000000000000000000}` {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

func TestConcurrentCallsDoNotDisturbEachOther(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				in := fmt.Sprintf(`{"b\n%d":[{"y":%d.5,"x":"\u0041"}],"a":{}}`, g, i)
				want := fmt.Sprintf(`{"a":{},"b\n%d":[{"x":"A","y":%d.5}]}`, g, i)
				if got, err := Canonicalize([]byte(in), Exact); err != nil || string(got) != want {
					t.Errorf("%s became %s, %v", in, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAppendString(t *testing.T) {
	got, err := AppendString([]byte("x="), "a\"\\\n\x00\x7fé")
	if want := `x="a\"\\\n\u0000` + "\x7fé\""; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	again, err := Canonicalize(got[2:], JCS)
	if err != nil || !bytes.Equal(again, got[2:]) {
		t.Errorf("%s is not canonical: %s, %v", got[2:], again, err)
	}
	got, err = AppendString([]byte("x="), "ok\xc3")
	if e, ok := errors.AsType[*SyntaxError](err); !ok || e.Offset != 2 || string(got) != "x=" {
		t.Errorf("invalid UTF-8 gave %s, %v", got, err)
	}
}

func TestDepthIsBounded(t *testing.T) {
	nest := func(open, inner, end string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
	}
	for _, c := range []struct{ name, open, end string }{
		{"arrays", "[", "]"},
		{"objects", `{"a":`, "}"},
		{"both in turn", `[{"a":`, "}]"},
	} {
		perRound := strings.Count(c.open, "[") + strings.Count(c.open, "{")
		t.Run(c.name+" at the bound are accepted", func(t *testing.T) {
			in := nest(c.open, "1", c.end, MaxDepth/perRound)
			got, err := Canonicalize([]byte(in), JCS)
			if err != nil || string(got) != in {
				t.Errorf("%d bytes out, %v", len(got), err)
			}
		})
		t.Run(c.name+" beyond it are refused at the bracket", func(t *testing.T) {
			in := nest(c.open, "[]", c.end, MaxDepth/perRound)
			wantRefusal(t, []byte(in), JCS, MaxDepth/perRound*len(c.open))
		})
		t.Run(c.name+" may be many side by side", func(t *testing.T) {
			in := "[" + strings.Repeat(nest(c.open, "1", c.end, 10)+",", 500) + "0]"
			got, err := Canonicalize([]byte(in), JCS)
			if err != nil || string(got) != in {
				t.Errorf("%d bytes out, %v", len(got), err)
			}
		})
	}
	t.Run("64 MiB of brackets are refused at the bound", func(t *testing.T) {
		wantRefusal(t, bytes.Repeat([]byte("["), 64<<20), JCS, MaxDepth)
		wantRefusal(t, bytes.Repeat([]byte(`{"":`), 16<<20), JCS, MaxDepth*len(`{"":`))
	})
	t.Run("every level may need sorting", func(t *testing.T) {
		in := nest(`{"b":`, `"deep"`, `,"a":0}`, MaxDepth)
		want := nest(`{"a":0,"b":`, `"deep"`, `}`, MaxDepth)
		got, err := Canonicalize([]byte(in), JCS)
		if err != nil || string(got) != want {
			t.Errorf("%d bytes out, %v, want %d", len(got), err, len(want))
		}
	})
}

func TestManyMembers(t *testing.T) {
	// Names of one to 26 bytes in a scrambled order, so that prefixes, ties of
	// prefixes and escapes all take part.
	const count = 5000
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("%.*s%d", i%22, "a common start of names\n", i))
	}
	document := func(names []string) []byte {
		out := []byte("{")
		for i, name := range names {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendQuoted(out, name)
			out = fmt.Appendf(out, `:{"%s":[]}`, strings.Repeat("v", len(name)))
		}
		return append(out, '}')
	}
	shuffled := make([]string, count)
	for i, name := range names {
		shuffled[i*1237%count] = name // 1237 and 5000 have no common factor
	}
	got, err := Canonicalize(document(shuffled), JCS)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names) // plain ASCII: byte order is the order of UTF-16 code units
	if want := document(names); !bytes.Equal(got, want) {
		t.Errorf("members are not in order")
	}
	in := document(append(shuffled, shuffled[count/2]))
	wantRefusal(t, in, JCS, bytes.LastIndex(in, appendQuoted(nil, shuffled[count/2])))
}

func TestParsersKeepNoLargeBuffers(t *testing.T) {
	large := []byte(`{"` + strings.Repeat("n", maxKeptBytes) + `\n":1` + strings.Repeat("0", maxKeptBytes) +
		`.5,"a":{` + strings.Repeat(`"":0,`, maxKeptRecords) + `"a":0}}`)
	p := &parser{src: large, mode: Exact}
	if err := p.parse(); err == nil {
		t.Fatal("duplicate names were accepted")
	}
	if cap(p.text) <= maxKeptBytes || cap(p.names) <= maxKeptBytes || cap(p.number) <= maxKeptBytes || cap(p.members) <= maxKeptRecords {
		t.Fatal("the input is too small to show anything")
	}
	p.release()
	if p.src != nil || cap(p.text) > maxKeptBytes || cap(p.names) > maxKeptBytes || cap(p.number) > maxKeptBytes || cap(p.members) > maxKeptRecords {
		t.Error("a released parser holds on to large buffers")
	}
}

// wantRefusal checks that in is refused with a SyntaxError at offset.
func wantRefusal(t *testing.T, in []byte, mode Mode, offset int) {
	t.Helper()
	got, err := Canonicalize(in, mode)
	e, ok := errors.AsType[*SyntaxError](err)
	switch {
	case !ok:
		t.Errorf("%.60q became %.60q, %v, want a SyntaxError", in, got, err)
	case e.Offset != offset:
		t.Errorf("%.60q: %v, want it at byte %d", in, err, offset)
	}
}
