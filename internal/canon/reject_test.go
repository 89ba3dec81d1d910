package canon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// refusals are texts that both modes refuse at the given offset.
var refusals = []struct {
	name   string
	in     string
	offset int
	msg    string // a part of the message
}{
	{"empty input", "", 0, "unexpected end"},
	{"only white space", " \n", 2, "unexpected end"},
	{"byte order mark", "\xef\xbb\xbf{}", 0, "byte order mark"},
	{"byte order mark after white space", " \xef\xbb\xbf{}", 1, "a value expected"},
	{"a second value", "{} {}", 3, "more after the value"},
	{"a comma after the value", "1,", 1, "more after the value"},
	{"a zero byte after the value", "1\x00", 1, "more after the value"},
	{"a zero byte for a value", "\x00", 0, "a value expected"},
	{"a form feed as white space", "\f1", 0, "a value expected"},
	{"a no-break space as white space", "\u00a01", 0, "a value expected"},
	{"a comment", "/* */1", 0, "a value expected"},
	{"single quotes", "'a'", 0, "a value expected"},

	{"open array", "[", 1, "unexpected end"},
	{"open array after a value", "[1", 2, "unexpected end"},
	{"open array after a comma", "[1,", 3, "unexpected end"},
	{"comma before the end of an array", "[1,]", 3, "a value expected"},
	{"comma at the start of an array", "[,1]", 1, "a value expected"},
	{"two commas", "[1,,2]", 3, "a value expected"},
	{"elements without a comma", "[1 2]", 3, "',' or ']'"},
	{"array closed by a brace", "[1}", 2, "',' or ']'"},
	{"closed without being open", "]", 0, "a value expected"},

	{"open object", "{", 1, "unexpected end"},
	{"open object after a name", `{"a"`, 4, "unexpected end"},
	{"open object after a colon", `{"a":`, 5, "unexpected end"},
	{"open object after a value", `{"a":1`, 6, "unexpected end"},
	{"open object after a comma", `{"a":1,`, 7, "unexpected end"},
	{"comma before the end of an object", `{"a":1,}`, 7, "a member name"},
	{"name without quotes", `{a:1}`, 1, "a member name"},
	{"name that is a number", `{1:1}`, 1, "a member name"},
	{"name without a value", `{"a"}`, 4, "':'"},
	{"comma for a colon", `{"a",1}`, 4, "':'"},
	{"members without a comma", `{"a":1 "b":2}`, 7, "',' or '}'"},
	{"number with a space inside", `{"a":1 2}`, 7, "',' or '}'"},
	{"object closed by a bracket", `{"a":1]`, 6, "',' or '}'"},

	{"duplicate names", `{"a":1,"a":2}`, 7, "duplicate member name"},
	{"duplicate names after unescaping", `{"a":1,"b":2, "\u0061":3}`, 14, "duplicate member name"},
	{"duplicate names in two spellings of a surrogate pair", `{"😂":1,"\ud83d\ude02":2}`, 10, "duplicate member name"},
	{"duplicate empty names", `{"":1,"":2}`, 6, "duplicate member name"},
	{"three equal names", `{"b":0,"a":1,"a":2,"a":3}`, 13, "duplicate member name"},
	{"two pairs of equal names", `{"b":0,"a":1,"b":2,"a":3}`, 13, "duplicate member name"},
	{"duplicate names with equal values", `{"a":1,"a":1}`, 7, "duplicate member name"},
	{"duplicate long names", `{"a long name 1":1,"a long name 2":2,"a long name 1":3}`, 37, "duplicate member name"},
	{"duplicate names far down", `[0,{"x":[{"a":1,"a":2}]}]`, 16, "duplicate member name"},

	{"truncated true", "tru", 3, "unexpected end"},
	{"misspelled false", "falsy", 4, "false expected"},
	{"capital null", "Null", 0, "a value expected"},
	{"null with a tail", "nullx", 4, "more after the value"},
	{"literal with a space inside", "[tr ue]", 3, "true expected"},

	{"leading zero", "01", 1, "leading zero"},
	{"leading zero after a minus", "-01", 2, "leading zero"},
	{"two zeros", "[00]", 2, "leading zero"},
	{"leading zero of a fraction", "00.5", 1, "leading zero"},
	{"plus", "+1", 0, "a value expected"},
	{"fraction alone", ".5", 0, "a value expected"},
	{"point without a fraction", "1.", 2, "unexpected end"},
	{"point and exponent", "1.e1", 2, "a digit"},
	{"point in an array", "[1.]", 3, "a digit"},
	{"two points", "1.2.3", 3, "more after the value"},
	{"exponent without digits", "1e", 2, "unexpected end"},
	{"exponent with a sign alone", "1e+", 3, "unexpected end"},
	{"exponent with a fraction", "1e1.5", 3, "more after the value"},
	{"exponent with two signs", "1e+-1", 3, "a digit"},
	{"minus alone", "-", 1, "unexpected end"},
	{"minus and space", "- 1", 1, "a digit"},
	{"two minuses", "--1", 1, "a digit"},
	{"hexadecimal", "0x1", 1, "more after the value"},
	{"hexadecimal float", "[0x1p-2]", 2, "',' or ']'"},
	{"underscore", "1_0", 1, "more after the value"},
	{"NaN", "NaN", 0, "a value expected"},
	{"Infinity", "Infinity", 0, "a value expected"},
	{"minus Infinity", "-Infinity", 1, "a digit"},
	{"digits of another script", "[\u0661]", 1, "a value expected"},
	{"a number beyond both modes", "[1e1000001]", 1, "out of range"},
	{"a number far beyond both modes", "-1" + strings.Repeat("0", 30) + "e99999999999999999999999999", 0, "out of range"},

	{"open string", `"a`, 2, "unterminated string"},
	{"a quote alone", `"`, 1, "unterminated string"},
	{"open name", `{"a`, 3, "unterminated string"},
	{"string ending in a backslash", `"a\`, 3, "unterminated string"},
	{"string ending in an escaped quote", `"a\"`, 4, "unterminated string"},
	{"line feed in a string", "\"a\nb\"", 2, "control character"},
	{"zero byte in a string", "\"\x00\"", 1, "control character"},
	{"last control character in a string", "\"ab\x1f\"", 3, "control character"},
	{"control character after an escape", "\"\\n\t\"", 3, "control character"},
	{"control character in a name", "{\"\t\":1}", 2, "control character"},
	{"unknown escape", `"ab\x41"`, 3, "invalid escape"},
	{"escaped single quote", `"\'"`, 1, "invalid escape"},
	{"capital escape", `"\N"`, 1, "invalid escape"},
	{"escaped line feed", "\"\\\n\"", 1, "invalid escape"},
	{"escaped zero", `"\0"`, 1, "invalid escape"},
	{"short unicode escape", `"\u12"`, 1, "invalid escape"},
	{"unicode escape at the end", `"\u12`, 1, "invalid escape"},
	{"unicode escape that is not hexadecimal", `"a\u12g4"`, 2, "invalid escape"},
	{"unicode escape with a sign", `"\u+123"`, 1, "invalid escape"},
	{"capital unicode escape", `"\U0041"`, 1, "invalid escape"},

	{"lone high surrogate", `"\ud800"`, 1, "surrogate"},
	{"lone low surrogate", `"a\udc00"`, 2, "surrogate"},
	{"last low surrogate alone", `"\udfff"`, 1, "surrogate"},
	{"two high surrogates", `"\ud83d\ud83d"`, 1, "surrogate"},
	{"surrogates in the wrong order", `"\ude02\ud83d"`, 1, "surrogate"},
	{"high surrogate and a letter", `"\ud83dx"`, 1, "surrogate"},
	{"high surrogate and another escape", `"\ud83d\n"`, 1, "surrogate"},
	{"high surrogate and a BMP escape", `"\ud83d\u0041"`, 1, "surrogate"},
	{"high surrogate and a short escape", `"\ud83d\ude0"`, 1, "surrogate"},
	{"high surrogate at the end", `"\ud83d`, 1, "surrogate"},
	{"high surrogate after a whole pair", `"\ud83d\ude02\ud83d"`, 13, "surrogate"},
	{"lone surrogate in a name", `{"\ud800":1}`, 2, "surrogate"},
	{"a surrogate encoded in UTF-8", "\"\xed\xa0\x80\"", 1, "invalid UTF-8"},
	{"a surrogate pair encoded in UTF-8", "\"a\xed\xa0\xbd\xed\xb8\x82\"", 2, "invalid UTF-8"},

	{"a byte that UTF-8 never has", "\"ab\xff\"", 3, "invalid UTF-8"},
	{"a continuation byte alone", "\"\x80\"", 1, "invalid UTF-8"},
	{"a truncated sequence", "\"é\xe2\x82\"", 3, "invalid UTF-8"},
	{"a sequence cut by an escape", "\"\xe2\x82\\n\xac\"", 1, "invalid UTF-8"},
	{"an overlong slash", "\"\xc0\xaf\"", 1, "invalid UTF-8"},
	{"an overlong zero", "\"\xc0\x80\"", 1, "invalid UTF-8"},
	{"beyond the last code point", "\"\xf4\x90\x80\x80\"", 1, "invalid UTF-8"},
	{"invalid UTF-8 after an escape", "\"\\n\xff\"", 3, "invalid UTF-8"},
	{"invalid UTF-8 in a name", "{\"\xff\":1}", 2, "invalid UTF-8"},
	{"invalid UTF-8 at the end", "\"\xe2", 1, "invalid UTF-8"},
	{"invalid UTF-8 outside a string", "[\xff]", 1, "a value expected"},
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		for _, mode := range []Mode{JCS, Exact} {
			t.Run(fmt.Sprintf("%s, mode %d", c.name, mode), func(t *testing.T) {
				got, err := Canonicalize([]byte(c.in), mode)
				e, ok := errors.AsType[*SyntaxError](err)
				switch {
				case !ok:
					t.Errorf("%.60q became %.60q, %v, want a SyntaxError", c.in, got, err)
				case e.Offset != c.offset || !strings.Contains(e.Msg, c.msg):
					t.Errorf("%.60q: %v, want %q at byte %d", c.in, err, c.msg, c.offset)
				}
			})
		}
	}
}

func TestNumbersOutOfRange(t *testing.T) {
	const bound = "1000000" // MaxExponent
	cases := []struct {
		in     string
		jcs    bool // accepted by JCS
		exact  bool // accepted by Exact
		offset int
	}{
		{"[1e308]", true, true, 0},
		{"[ 1.7976931348623157e308]", true, true, 0},
		{"[ 1.7976931348623158e308]", true, true, 0}, // rounds down to the largest
		{"[ 1.7976931348623159e308]", false, true, 2},
		{"[1e309]", false, true, 1},
		{"[-1e400]", false, true, 1},
		{"[1" + strings.Repeat("0", 400) + "]", false, true, 1},
		{"[1e-400]", true, true, 0},
		{"[9.99e" + bound + "]", false, true, 1},
		{"[10e" + bound + "]", false, false, 1},
		{"[0.1e1000001]", false, true, 1},
		{"[1e-" + bound + "]", true, true, 0},
		{"[0.1e-" + bound + "]", true, false, 1},
		{"[1e-99999999999999999999]", true, false, 1},
		{"[0e99999999999999999999]", true, true, 0},
		{"[-0.000E-99999999999999999999]", true, true, 0},
	}
	for _, c := range cases {
		for mode, accepted := range map[Mode]bool{JCS: c.jcs, Exact: c.exact} {
			t.Run(fmt.Sprintf("%.40s, mode %d", c.in, mode), func(t *testing.T) {
				if !accepted {
					wantRefusal(t, []byte(c.in), mode, c.offset)
				} else if _, err := Canonicalize([]byte(c.in), mode); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestErrorsNameThePlaceAndKeepTheInputSecret(t *testing.T) {
	_, err := Canonicalize([]byte(`{"secret":"hush","secret":"hush"}`), JCS)
	const want = "invalid JSON at byte 17: duplicate member name"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
