package canon

import (
	"bytes"
	"slices"
	"testing"
)

func TestFrame(t *testing.T) {
	texts := []string{"", "a", string(make([]byte, 300)), "b"}
	b := FrameList(nil, texts)
	if b[0] != byte(len(texts)) {
		t.Fatalf("the list says that it has %d texts", b[0])
	}
	var got []string
	for rest := b[1:]; len(rest) > 0; {
		text, more, ok := Unframe(rest)
		if !ok {
			t.Fatalf("nothing is framed in %x", rest)
		}
		got, rest = append(got, string(text)), more
	}
	if !slices.Equal(got, texts) {
		t.Errorf("%q became %q", texts, got)
	}
	for _, bad := range [][]byte{nil, {1}, {0x80}, bytes.Repeat([]byte{0xff}, 11), {255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0}} {
		if text, rest, ok := Unframe(bad); ok || text != nil || rest != nil {
			t.Errorf("%x has %q and %q", bad, text, rest)
		}
	}
}
