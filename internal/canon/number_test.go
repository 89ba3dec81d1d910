package canon

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	cases := []struct{ in, jcs, exact string }{
		// Both modes agree on what binary64 keeps.
		{"0", "0", "0"},
		{"-0", "0", "0"},
		{"-0.0e-7", "0", "0"},
		{"1", "1", "1"},
		{"1.0", "1", "1"},
		{"1e0", "1", "1"},
		{"10e-1", "1", "1"},
		{"0.00001E+5", "1", "1"},
		{"-12.50", "-12.5", "-12.5"},
		{"0.1", "0.1", "0.1"},
		{"1E30", "1e+30", "1e+30"},
		{"100", "100", "100"},
		{"1e2", "100", "100"},
		{"123456789012345", "123456789012345", "123456789012345"},
		{"9007199254740992", "9007199254740992", "9007199254740992"},
		{"-9007199254740991", "-9007199254740991", "-9007199254740991"},
		{"1e-300", "1e-300", "1e-300"},
		{"1.5e300", "1.5e+300", "1.5e+300"},
		{"5e-324", "5e-324", "5e-324"},

		// The edges of ECMAScript's layouts.
		{"100000000000000000000", "100000000000000000000", "100000000000000000000"},
		{"1e20", "100000000000000000000", "100000000000000000000"},
		{"1000000000000000000000", "1e+21", "1e+21"},
		{"123e19", "1.23e+21", "1.23e+21"},
		{"12e19", "120000000000000000000", "120000000000000000000"},
		{"0.000001", "0.000001", "0.000001"},
		{"0.00000123", "0.00000123", "0.00000123"},
		{"0.0000001", "1e-7", "1e-7"},
		{"0.000000123", "1.23e-7", "1.23e-7"},
		{"-1e-7", "-1e-7", "-1e-7"},
		{"12345.678", "12345.678", "12345.678"},

		// What binary64 can't hold.
		{"9007199254740993", "9007199254740992", "9007199254740993"},
		{"-9007199254740993.0", "-9007199254740992", "-9007199254740993"},
		{"12345678901234567890", "12345678901234567000", "12345678901234567890"},
		{"123456789012345678901234", "1.2345678901234569e+23", "1.23456789012345678901234e+23"},
		{"333333333.33333329", "333333333.3333333", "333333333.33333329"},
		{"0.1000000000000000055511151231257827", "0.1", "0.1000000000000000055511151231257827"},
		{"1e-400", "0", "1e-400"},
		{"-1e-400", "0", "-1e-400"},
		{"2e-324", "0", "2e-324"},
		{"3e-324", "5e-324", "3e-324"},
		{"123456e-328", "1e-323", "1.23456e-323"},
		{"1.7976931348623158e308", "1.7976931348623157e+308", "1.7976931348623158e+308"},
		{"2.2250738585072011e-308", "2.225073858507201e-308", "2.2250738585072011e-308"},

		// Halfway between two numbers of binary64, then a hair above.
		{"9007199254740993" + "." + strings.Repeat("0", 900) + "1", "9007199254740994", "9007199254740993." + strings.Repeat("0", 900) + "1"},

		// An exponent that its digits nearly cancel.
		{"0." + strings.Repeat("0", 150_000) + "1e150001", "1", "1"},
		{"1" + strings.Repeat("0", 150_000) + "e-150000", "1", "1"},
		{"-0." + strings.Repeat("0", 150_000) + "12345678901234567e150009", "-123456789.01234567", "-123456789.01234567"},
	}
	for _, c := range cases {
		for mode, want := range map[Mode]string{JCS: c.jcs, Exact: c.exact} {
			t.Run(fmt.Sprintf("%.30s of %d bytes, mode %d", c.in, len(c.in), mode), func(t *testing.T) {
				got, err := Canonicalize([]byte(c.in), mode)
				if err != nil || string(got) != want {
					t.Errorf("%.60s became %.60s, %v, want %.60s", c.in, got, err, want)
				}
			})
		}
	}
	t.Run("1e400 is kept in exact mode", func(t *testing.T) {
		got, err := Canonicalize([]byte("1e400"), Exact)
		if err != nil || string(got) != "1e+400" {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// decimalNumber is a number by its spelling: sign, digits, and how many of them
// stand before the point (which may be more than there are, or less than none).
type decimalNumber struct {
	negative bool
	digits   string
	point    int
}

func drawDecimal(t *rapid.T, maxPoint int) decimalNumber {
	digits := rapid.OneOf(
		rapid.StringMatching(`[1-9][0-9]{0,3}`),
		rapid.StringMatching(`[1-9][0-9]{13,18}`), // where binary64 ends
		rapid.StringMatching(`900719925474099[0-9]{1,3}`),
		rapid.StringMatching(`[0-9]{1,40}`),
	).Draw(t, "digits")
	return decimalNumber{
		negative: rapid.Bool().Draw(t, "negative"),
		digits:   digits,
		point:    rapid.OneOf(rapid.IntRange(-8, 25), rapid.IntRange(-maxPoint, maxPoint)).Draw(t, "point"),
	}
}

// spell writes the number as a JSON literal in one of many ways.
func (d decimalNumber) spell(t *rapid.T) string {
	digits := strings.Repeat("0", rapid.IntRange(0, 3).Draw(t, "leading")) +
		d.digits + strings.Repeat("0", rapid.IntRange(0, 3).Draw(t, "trailing"))
	point := d.point + strings.Index(digits, d.digits)
	// split is where the literal's own point goes; the exponent makes up for it.
	split := rapid.IntRange(0, len(digits)).Draw(t, "split")
	whole, fraction := digits[:split], digits[split:]
	exponent := point - split
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	out := whole
	if d.negative {
		out = "-" + out
	}
	if fraction != "" {
		out += "." + fraction
	}
	if exponent != 0 || rapid.Bool().Draw(t, "exponent") {
		out += rapid.SampledFrom([]string{"e", "E"}).Draw(t, "e")
		if exponent >= 0 && rapid.Bool().Draw(t, "plus") {
			out += "+"
		}
		out += rapid.SampledFrom([]string{"%d", "%03d"}).Draw(t, "exponent format")
		out = fmt.Sprintf(out, exponent)
	}
	return out
}

func ratOf(t *rapid.T, literal string) *big.Rat {
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		t.Fatalf("big.Rat can't read %s", literal)
	}
	return r
}

func mustCanonicalize(t *rapid.T, in string, mode Mode) string {
	t.Helper()
	got, err := Canonicalize([]byte(in), mode)
	if err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	return string(got)
}

func TestExactNumbersKeepTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawDecimal(t, 500).spell(t)
		got := mustCanonicalize(t, in, Exact)
		if ratOf(t, in).Cmp(ratOf(t, got)) != 0 {
			t.Fatalf("%s became %s", in, got)
		}
	})
}

func TestEqualNumbersHaveEqualTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecimal(t, 300)
		a, b := d.spell(t), d.spell(t)
		for _, mode := range []Mode{JCS, Exact} {
			if x, y := mustCanonicalize(t, a, mode), mustCanonicalize(t, b, mode); x != y {
				t.Fatalf("mode %d: %s became %s, %s became %s", mode, a, x, b, y)
			}
		}
	})
}

func TestExactTextsAreEqualOnlyForEqualNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecimal(t, 300)
		e := d
		switch rapid.SampledFrom([]string{"digit", "point", "sign", "other"}).Draw(t, "change") {
		case "digit":
			at := rapid.IntRange(0, len(d.digits)-1).Draw(t, "at")
			digit := rapid.StringMatching(`[0-9]`).Draw(t, "digit")
			e.digits = d.digits[:at] + digit + d.digits[at+1:]
		case "point":
			e.point += rapid.IntRange(-1, 1).Draw(t, "by")
		case "sign":
			e.negative = !d.negative
		case "other":
			e = drawDecimal(t, 300)
		}
		a, b := d.spell(t), e.spell(t)
		x, y := mustCanonicalize(t, a, Exact), mustCanonicalize(t, b, Exact)
		if same := ratOf(t, a).Cmp(ratOf(t, b)) == 0; same != (x == y) {
			t.Fatalf("%s became %s, %s became %s, equal: %t", a, x, b, y, same)
		}
	})
}

func TestJCSNumbersAreTheNearestBinary64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawDecimal(t, 350).spell(t)
		f, _ := ratOf(t, in).Float64()
		want, overflow := jcs.NumberToJSON(f)
		got, err := Canonicalize([]byte(in), JCS)
		if (err != nil) != (overflow != nil) || err == nil && string(got) != want {
			t.Fatalf("%s became %s, %v, want %s, %v", in, got, err, want, overflow)
		}
	})
}
