package canon

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// agrees checks Canonicalize in JCS mode against another implementation of RFC
// 8785: both accept a text with the same result or both refuse it. Where that
// is not so, it must be for one of the known differences.
func agrees(t interface {
	Helper()
	Fatalf(string, ...any)
}, in []byte) {
	t.Helper()
	got, err := Canonicalize(in, JCS)
	want, wantErr := jcs.Transform(in)
	switch {
	case err == nil && wantErr == nil && bytes.Equal(got, want):
	case err != nil && wantErr != nil:
	case err != nil && nestsTooDeep(err):
		// Known difference: jcs nests up to 10,000 deep. RFC 8785 sets no
		// bound; ours is the tighter one so that no request may cost more.
	default:
		t.Fatalf("%.200q became\n     %.200q, %v\njcs: %.200q, %v", in, got, err, want, wantErr)
	}
}

func nestsTooDeep(err error) bool {
	e, ok := errors.AsType[*SyntaxError](err)
	return ok && e.Msg == "nested too deep"
}

func TestAgreesWithAnotherImplementation(t *testing.T) {
	t.Run("on the published vectors", func(t *testing.T) {
		for _, v := range vectors {
			agrees(t, []byte(v.input))
		}
	})
	t.Run("on what to refuse", func(t *testing.T) {
		for _, c := range refusals {
			agrees(t, []byte(c.in))
		}
	})
	t.Run("on drawn documents", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			agrees(t, []byte(drawSpelling(t, drawTree(t, 3))))
		})
	})
	t.Run("on drawn documents with a byte changed", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			in := []byte(drawSpelling(t, drawTree(t, 2)))
			at := rapid.IntRange(0, len(in)-1).Draw(t, "at")
			in[at] = rapid.OneOf(
				rapid.SampledFrom([]byte(`{}[],:"\0-+.eEu `)),
				rapid.Byte(),
			).Draw(t, "byte")
			agrees(t, in)
		})
	})
}

// TestKnownDifferences shows that each difference is one, so that agrees does
// not excuse what no longer exists.
func TestKnownDifferences(t *testing.T) {
	t.Run("depth from 1,001 to 10,000 is refused only here", func(t *testing.T) {
		in := []byte(strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1))
		if _, err := jcs.Transform(in); err != nil {
			t.Errorf("jcs refuses it too: %v", err)
		}
		wantRefusal(t, in, JCS, MaxDepth)
	})
	t.Run("exponents of six digits that the digits cancel are miscounted there", func(t *testing.T) {
		// Not reached by agrees: the text takes more than 100,000 bytes. Behind
		// it is strconv, which stops counting an exponent at five digits.
		in := []byte("0." + strings.Repeat("0", 150_000) + "1e150001")
		if theirs, err := jcs.Transform(in); err == nil && string(theirs) == "1" {
			t.Errorf("jcs counts them too")
		}
		if got, err := Canonicalize(in, JCS); err != nil || string(got) != "1" {
			t.Errorf("got %.40s, %v, want 1", got, err)
		}
	})
}
