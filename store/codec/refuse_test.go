package codec

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/semelhq/semel/store"
)

// Where a record whose fields are zero, but for one earlier attempt, has them.
const (
	nextAtOffset      = 1 + len(store.Revision{})
	stateOffset       = nextAtOffset + 1 + 4 + 1 // after the identity and the flags
	dispositionOffset = stateOffset + 1
	earlierFromEnd    = 3 // the disposition of an attempt stands before two instants
)

// zeroBody is that record as Append writes it, without the checksum.
func zeroBody(t *testing.T) []byte {
	t.Helper()
	b := encode(t, &store.Record{Earlier: []store.AttemptRecord{{}}})
	return b[:len(b)-crc32.Size]
}

func TestWordsThatAreNotKnownAreOfANewerProgram(t *testing.T) {
	body := zeroBody(t)
	for name, at := range map[string]int{
		"the state":                             stateOffset,
		"the disposition":                       dispositionOffset,
		"the disposition of an earlier attempt": len(body) - earlierFromEnd,
	} {
		t.Run(name, func(t *testing.T) {
			last := byte(lastDisposition)
			if at == stateOffset {
				last = byte(lastState)
			}
			for b := range 256 {
				body := slices.Clone(body)
				body[at] = byte(b)
				rec, err := Decode(sealed(body))
				switch known := b >= 1 && b <= int(last)+1; {
				case b == 0 && !errors.Is(err, ErrCorrupt), b > 0 && !known && !errors.Is(err, ErrNewer):
					t.Errorf("byte %d gives %v", b, err)
				case known && err != nil:
					t.Errorf("byte %d: %v", b, err)
				case known:
					got := map[int]int{stateOffset: int(rec.State), dispositionOffset: int(rec.Disposition), len(body) - earlierFromEnd: int(rec.Earlier[0].Disposition)}
					if got[at] != b-1 {
						t.Errorf("byte %d is read as %d", b, got[at])
					}
				}
			}
			// How a word that is not in the vocabulary would be written out.
			body := slices.Concat(body[:at], appendText([]byte{0}, "lost"), body[at+1:])
			if _, err := Decode(sealed(body)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a word of its own gives %v", err)
			}
		})
	}
}

func TestFlagsThatAreNotKnownAreOfANewerProgram(t *testing.T) {
	plain := encode(t, &store.Record{})
	with := encode(t, &store.Record{Policy: store.Policy{Window: 1}})
	extras := len(plain) - crc32.Size // where the first byte after the record's last field stands
	for name, c := range map[string]struct {
		b     []byte
		at    int
		known byte
	}{
		"a record": {plain, stateOffset - 1, knownRecordFlags},
		"a policy": {with, extras + 1, knownPolicy},
	} {
		t.Run("of "+name, func(t *testing.T) {
			for bit := byte(1); bit != 0; bit <<= 1 {
				body := slices.Clone(c.b[:len(c.b)-crc32.Size])
				if body[c.at] |= bit; c.known&bit != 0 {
					continue
				}
				if _, err := Decode(sealed(body)); !errors.Is(err, ErrNewer) {
					t.Errorf("bit %08b gives %v", bit, err)
				}
			}
		})
	}
}

func TestMembersThatAreNotKnownAreOfANewerProgram(t *testing.T) {
	plain := encode(t, &store.Record{})
	for flag := uint64(knownExtras + 1); flag != 0; flag <<= 1 {
		body := binary.AppendUvarint(slices.Clone(plain[:len(plain)-crc32.Size]), flag)
		if _, err := Decode(sealed(body)); !errors.Is(err, ErrNewer) {
			t.Errorf("flag %b gives %v", flag, err)
		}
	}
}

func TestInstants(t *testing.T) {
	body := zeroBody(t)
	for _, c := range []struct {
		name    string
		seconds int64
		nanos   uint64
		want    store.Instant // zero: it is refused
	}{
		{"1970 itself, which is none", 0, 0, 0},
		{"just after 1970", 0, 1, 1},
		{"just before 1970", -1, 999_999_999, -1},
		{"a second before 1970", -1, 0, -1_000_000_000},
		{"the last there is", 9_223_372_036, 854_775_807, math.MaxInt64},
		{"one after the last", 9_223_372_036, 854_775_808, 0},
		{"the first there is", -9_223_372_037, 145_224_192, math.MinInt64},
		{"one before the first", -9_223_372_037, 145_224_191, 0},
		{"a second too late", 9_223_372_037, 0, 0},
		{"a second too early", -9_223_372_038, 0, 0},
		{"the year 10000", 253_402_300_800, 0, 0},
		{"the year 1", -62_135_596_800, 0, 0},
		{"the last second that can be written", math.MaxInt64, 0, 0},
		{"the first second that can be written", math.MinInt64, 0, 0},
		{"more nanoseconds than a second has", 0, 1_000_000_000, 0},
		{"the most nanoseconds that can be written", 0, math.MaxUint64 - 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			written := binary.AppendVarint(binary.AppendUvarint(nil, c.nanos+1), c.seconds)
			b := sealed(slices.Concat(body[:nextAtOffset], written, body[nextAtOffset+1:]))
			rec, err := Decode(b)
			head, headErr := ReadHead(b, &store.ID{})
			if c.want == 0 {
				if !errors.Is(err, ErrCorrupt) || !errors.Is(headErr, ErrCorrupt) {
					t.Errorf("got %d, %v and %d, %v", rec.NextAt, err, head.NextAt, headErr)
				}
				return
			}
			if err != nil || headErr != nil || rec.NextAt != c.want || head.NextAt != c.want {
				t.Errorf("got %d, %v and %d, %v; want %d", rec.NextAt, err, head.NextAt, headErr, c.want)
			}
			if again := encode(t, rec); string(again) != string(b) {
				t.Error("Append writes it in another way")
			}
		})
	}
}
