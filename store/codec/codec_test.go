package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/store"
)

// fill sets every exported field below v to something random, by reflection, so
// that a field that is added to a record and not to the format fails the test.
func fill(t *rapid.T, v reflect.Value, path string) {
	switch v.Interface().(type) {
	case store.Instant:
		v.Set(reflect.ValueOf(anyInstant(t, path)))
		return
	case store.Fingerprint:
		if rapid.Bool().Draw(t, path+" set") {
			var sum [32]byte
			copy(sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, path))
			v.Set(reflect.ValueOf(store.NewFingerprint(store.Scheme(rapid.Byte().Draw(t, path+" scheme")), sum)))
		}
		return
	case store.State:
		v.SetUint(rapid.Uint64Range(0, uint64(lastState)).Draw(t, path))
		return
	case store.Disposition:
		v.SetUint(rapid.Uint64Range(0, uint64(lastDisposition)).Draw(t, path))
		return
	case store.MessageState:
		v.SetString(anyWord(t, path, messageStates))
		return
	case store.CompensationState:
		v.SetString(anyWord(t, path, compensationStates))
		return
	case store.Attributes:
		if strings.HasSuffix(path, ".Result.Attributes") {
			return // no stored result has any
		}
		if rapid.Bool().Draw(t, path+" set") {
			v.Set(reflect.ValueOf(store.Attributes(rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, path))))
		}
		return
	case store.EffectState:
		v.SetString(anyWord(t, path, effectStates))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.String().Draw(t, path))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, path))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, path))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, path)))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(t, v.Field(i), path+"."+f.Name)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Slice:
		n := rapid.IntRange(-1, 3).Draw(t, path+" length")
		if n < 0 {
			return // nil, which is not the same as empty
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, path+" set") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), path)
		}
	default:
		t.Fatalf("%s is a %s, which this test does not know how to fill", path, v.Type())
	}
}

func anyWord[W ~string](t *rapid.T, path string, words []W) string {
	if rapid.IntRange(0, 9).Draw(t, path+" kind") == 0 {
		return rapid.String().Draw(t, path)
	}
	return string(rapid.SampledFrom(words).Draw(t, path))
}

func anyInstant(t *rapid.T, path string) store.Instant {
	switch rapid.IntRange(0, 3).Draw(t, path+" kind") {
	case 0:
		return 0
	case 1: // to the ends of what there is
		return store.Instant(rapid.Int64().Draw(t, path))
	}
	return store.InstantOf(time.Unix(rapid.Int64Range(0, 4_000_000_000).Draw(t, path), rapid.Int64Range(0, 999_999_999).Draw(t, path+" nanoseconds")))
}

func encode(t testing.TB, r *store.Record) []byte {
	t.Helper()
	b, err := Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want store.Record
		fill(t, reflect.ValueOf(&want).Elem(), "Record")
		want.Held = want.Held || want.State == store.Processing && want.HeldReason != "" // no record has a reason alone
		prefix := []byte("before")
		b, err := Append(prefix, &want)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[:len(prefix)]) != "before" {
			t.Fatal("Append changed what it was to append to")
		}
		b = b[len(prefix):]
		got, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		clear(b) // the record may not depend on the bytes it was read from
		if !reflect.DeepEqual(got, &want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestReadHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rec store.Record
		fill(t, reflect.ValueOf(&rec).Elem(), "Record")
		b, err := Append(nil, &rec)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadHead(b, &rec.ID)
		if err != nil || h.Revision != rec.Revision || h.NextAt != rec.NextAt {
			t.Fatalf("got %+v, %v", h, err)
		}
		// The same text, cut into members at another place, is another identity.
		other := store.ID{Tenant: rec.ID.Tenant + "x", Principal: rec.ID.Principal, Operation: rec.ID.Operation, Key: rec.ID.Key}
		if _, err := ReadHead(b, &other); !errors.Is(err, ErrOther) {
			t.Fatalf("the record of another identity: %v", err)
		}
	})
}

// TestEveryFlippedBitIsFound also covers every cut: the checksum stands at the
// end.
func TestEveryFlippedBitIsFound(t *testing.T) {
	b := encode(t, goldenRecord())
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := Decode(b); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			b[i] ^= 1 << bit
		}
		if _, err := Decode(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
}

// sealed gives a body the checksum that belongs to it.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(append([]byte(nil), body...), crc32.Checksum(body, castagnoli))
}

func TestOtherFormatsAreRefused(t *testing.T) {
	b := encode(t, goldenRecord())
	body := b[:len(b)-crc32.Size]
	for name, c := range map[string]struct {
		first byte
		want  error
	}{
		"a newer format, with a sentence": {Version + 1, ErrNewer},
		"the last possible format":        {math.MaxUint8, ErrNewer},
		"format 0":                        {0, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			body[0] = c.first
			if _, err := Decode(sealed(body)); !errors.Is(err, c.want) {
				t.Errorf("Decode: %v", err)
			}
			if _, err := ReadHead(sealed(body), &store.ID{}); !errors.Is(err, c.want) {
				t.Errorf("ReadHead: %v", err)
			}
		})
	}
}

// FuzzDecode gives Decode bytes whose checksum is right, so that it reads on. It
// may not panic, and may not allocate much more than it was given.
func FuzzDecode(f *testing.F) {
	b := encode(f, goldenRecord())
	f.Add(b[1 : len(b)-crc32.Size])
	b = encode(f, &store.Record{})
	f.Add(b[1 : len(b)-crc32.Size])
	f.Fuzz(func(t *testing.T, fields []byte) {
		src := sealed(append([]byte{Version}, fields...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rec, err := Decode(src)
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 64<<10+64*uint64(len(src)) {
			t.Fatalf("%d bytes were allocated for %d", grew, len(src))
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		// What can be read can be written, and read again as the same.
		again, err := Decode(encode(t, rec))
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Fatalf("read %+v, then %+v: %v", rec, again, err)
		}
		if _, err := ReadHead(src, &rec.ID); err != nil {
			t.Fatalf("Decode reads it and ReadHead does not: %v", err)
		}
	})
}

// goldenRecord has something in every field. It never changes.
func goldenRecord() *store.Record {
	at := store.InstantOf(time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC))
	failure := &store.Failure{Code: "card_declined", Message: "the card was declined"}
	return &store.Record{
		ID:       store.ID{Tenant: "acme", Principal: "alice", Operation: "payments.charge@2", Key: "order-4711"},
		Revision: store.Revision{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		State:    store.Failed, Disposition: store.DispositionRejected,
		Fingerprint: store.NewFingerprint(store.SchemeJSON, [32]byte{31: 0xff}),
		Principal:   "bob", Fence: 1_795_176_000_123_456, Origin: 1_795_175_999_000_000, Attempt: 2, Holder: "node-1",
		CreatedAt: at, UpdatedAt: at.Add(time.Second), StartedAt: at.Add(2 * time.Second), EndedAt: at.Add(3 * time.Second),
		LeaseUntil: at.Add(4 * time.Second), ExpiresAt: at.Add(24 * time.Hour), NextAt: at.Add(24 * time.Hour),
		Held: true, HeldReason: "the provider did not answer",
		Result: store.Result{Data: []byte{0, 1, 2, 0xff}, Tombstone: true}, Failure: failure,
		Effects: []store.EffectRecord{
			{
				Name: "charge", Key: "Zm9v", State: store.EffectConfirmed, Fence: 7,
				Result: store.Result{Data: []byte("ch_1")}, StartedAt: at, SettledAt: at.Add(time.Millisecond),
			},
			{Name: "mail", Key: "YmFy", State: store.EffectRefuted, Fence: 8, Failure: failure, StartedAt: at},
		},
		Earlier: []store.AttemptRecord{{
			Number: 1, Fence: 7, Holder: "node-0", Principal: "alice", Disposition: store.DispositionAborted,
			Failure: &store.Failure{Code: "aborted"}, StartedAt: at, EndedAt: at.Add(time.Second),
		}},
	}
}

func BenchmarkAppend(b *testing.B) {
	rec := goldenRecord()
	rec.Result.Data = make([]byte, 1024)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = Append(dst[:0], rec)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecode(b *testing.B) {
	rec := goldenRecord()
	rec.Result.Data = make([]byte, 1024)
	src := encode(b, rec)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHead(b *testing.B) {
	rec := goldenRecord()
	rec.Result.Data = make([]byte, 1024)
	src := encode(b, rec)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadHead(src, &rec.ID); err != nil {
			b.Fatal(err)
		}
	}
}
