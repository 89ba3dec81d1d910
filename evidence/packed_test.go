package evidence

import (
	"bytes"
	"testing"

	"github.com/semelhq/semel"
	"pgregory.net/rapid"
)

// text draws what a text may be, as JSON has it: valid UTF-8.
func text(t *rapid.T) string { return rapid.String().Draw(t, "text") }

// fill fills digests and salts.
func fill(t *rapid.T, to ...[]byte) {
	for _, b := range to {
		copy(b, rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, "bytes"))
	}
}

func drawLeaf(t *rapid.T) (l leaf) {
	l = leaf{
		executed: verdict(rapid.IntRange(0, 2).Draw(t, "executed")), has: leafParts(rapid.IntRange(0, 7).Draw(t, "has")),
		attempt: rapid.Int64().Draw(t, "attempt"), fence: rapid.Int64().Draw(t, "fence"), count: rapid.Uint64().Draw(t, "count"), at: semel.Instant(rapid.Int64().Draw(t, "at")),
	}
	for _, to := range l.texts() {
		*to = text(t)
	}
	fill(t, l.node[:], l.tenant[:], l.commitment[:])
	for part, to := range map[leafParts]*keyedDigest{hasFingerprint: &l.fingerprint, hasOutcomeRef: &l.outcome, hasPresented: &l.presented} {
		if l.has&part != 0 {
			fill(t, to[:])
		}
	}
	return l
}

func drawOpening(t *rapid.T) (o opening) {
	o.has = openingParts(rapid.IntRange(0, 7).Draw(t, "has"))
	for _, to := range o.texts() {
		*to = text(t)
	}
	fill(t, o.salt[:])
	for part, to := range map[openingParts][]byte{opensFingerprint: o.fingerprint[:], opensPresented: o.presented[:], opensOutcome: o.outcome[:]} {
		if o.has&part != 0 {
			fill(t, to)
		}
	}
	return o
}

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, o := drawLeaf(t), drawOpening(t)
		var gotLeaf leaf
		if !gotLeaf.unpack(l.pack(nil)) || gotLeaf != l {
			t.Errorf("%+v becomes %+v", l, gotLeaf)
		}
		var gotOpening opening
		if !gotOpening.unpack(o.pack(nil)) || gotOpening != o {
			t.Errorf("%+v becomes %+v", o, gotOpening)
		}
		en := Unpack(semel.Entry{Leaf: l.pack(nil), Opening: o.pack(nil)})
		if want := l.appendJSON(nil, &dates{}); !bytes.Equal(en.Leaf, want) {
			t.Errorf("the leaf is %s, not %s", en.Leaf, want)
		}
		if want := o.appendJSON(nil); !bytes.Equal(en.Opening, want) {
			t.Errorf("the opening is %s, not %s", en.Opening, want)
		}
	})
}

// What is no packed entry is left alone, so that it is found by its hash: part of
// one, more than one, anything else, and JSON, which an entry may be as well.
func TestWhatIsNotPackedStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, o := drawLeaf(t), drawOpening(t)
		packedLeaf, packedOpening := l.pack(nil), o.pack(nil)
		n := rapid.IntRange(0, len(packedLeaf)-1).Draw(t, "of the leaf")
		m := rapid.IntRange(0, len(packedOpening)-1).Draw(t, "of the opening")
		junk := rapid.SliceOf(rapid.Byte()).Draw(t, "junk")
		for _, en := range []semel.Entry{
			{Leaf: packedLeaf[:n], Opening: packedOpening[:m]},
			{Leaf: append(packedLeaf, 0), Opening: append(packedOpening, junk...)[:len(packedOpening)+min(1, len(junk))]},
			{Leaf: append([]byte(`{`), junk...), Opening: []byte(`{}`)},
			{Leaf: []byte{packedForm}},
			{},
		} {
			if len(en.Opening) == len(packedOpening) {
				en.Opening = nil
			}
			if got := Unpack(en); !bytes.Equal(got.Leaf, en.Leaf) || !bytes.Equal(got.Opening, en.Opening) || (got.Opening == nil) != (en.Opening == nil) {
				t.Errorf("%q and %q become %q and %q", en.Leaf, en.Opening, got.Leaf, got.Opening)
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	l, o := leaf{kind: string(TypeExecuted), has: hasOutcomeRef}, opening{key: "k", has: opensOutcome}
	f.Add(l.pack(nil), o.pack(nil))
	f.Add([]byte{packedForm, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, []byte{packedForm, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, leafBytes, openingBytes []byte) {
		en := Unpack(semel.Entry{Leaf: leafBytes, Opening: openingBytes})
		again := Unpack(semel.Entry{Leaf: leafBytes, Opening: openingBytes})
		if !bytes.Equal(en.Leaf, again.Leaf) || !bytes.Equal(en.Opening, again.Opening) {
			t.Error("it is not the same twice")
		}
	})
}
