package pgstore

import (
	"bytes"
	"testing"

	"github.com/semelhq/semel"
)

func TestRoom(t *testing.T) {
	r := &room{need: 5000}
	encode := func(held []byte) []byte {
		t.Helper()
		b, err := r.Encode(held)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := encode(make([]byte, 0, 1024))
	if len(first) != 0 || cap(first) < r.need {
		t.Fatalf("a buffer has %d bytes and room for %d", len(first), cap(first))
	}
	if again := encode(make([]byte, 0, 1024)); cap(again) != cap(first) || &again[:1][0] != &first[:1][0] {
		t.Error("the next message has a new buffer")
	}
	if own := make([]byte, 0, 5000); cap(encode(own)) != cap(own) {
		t.Error("a buffer that has room was replaced")
	}
	if held := []byte("held back"); !bytes.Equal(encode(held), held) {
		t.Error("what the encoder held back is gone")
	}
	r.need = maxRoom + 1
	if large := encode(nil); cap(large) < r.need || r.buf != nil {
		t.Errorf("a large message has room for %d, and its buffer is kept: %v", cap(large), r.buf != nil)
	}
}

// The memory of a statement that was run is that of the next one, for as many rows or
// fewer, and nothing of it is left there.
func TestArenasAreUsedAgain(t *testing.T) {
	sql := newStatements("semel", 1, false)
	values := func(n int, key string) (all [][]byte) {
		ops := make([]*op, n)
		for i := range ops {
			o, err := newOp(semel.Write{Record: numbered(key, byte(i))})
			if err != nil {
				t.Fatal(err)
			}
			ops[i] = o
		}
		st := sql.creating(ops)
		for _, v := range st.values {
			all = append(all, bytes.Clone(v))
		}
		st.arena.discard()
		return all
	}
	for _, n := range []int{1, 3, 40} {
		want := values(n, "a key")
		for range 10 {
			values(50, "another, that is longer")
			values(1, "one")
			got := values(n, "a key")
			if len(got) != len(want) {
				t.Fatalf("%d parameters, want %d", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) || (got[i] == nil) != (want[i] == nil) {
					t.Errorf("%d rows: parameter %d is %x, and was %x", n, i+1, got[i], want[i])
				}
			}
		}
	}
}
