package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"

	"github.com/semelhq/semel/store"
)

// The fewest bytes that an effect and an earlier attempt take. They bound what
// a damaged count can make Decode allocate.
const (
	minEffect  = 8
	minAttempt = 8
)

// Decode reads what Append wrote. Text and bytes of the
// record share one copy of src, so src may be reused and small parts of a
// record keep all of it in memory.
//
// The error wraps [ErrCorrupt] or [ErrNewer].
func Decode(src []byte) (*store.Record, error) {
	body, err := checked(src)
	if err != nil {
		return nil, err
	}
	rec := new(store.Record)
	r := reader{b: bytes.Clone(body)}
	if err := r.record(rec); err != nil {
		return nil, err
	}
	return rec, nil
}

// Head is the part of a record that a compare-and-set needs.
type Head struct {
	Revision store.Revision
	NextAt   store.Instant
}

// ReadHead reads the head of an encoded record, after verifying the checksum of the whole and
// that the record belongs to id. It allocates nothing. Beside the errors of Decode it returns
// [ErrOther].
func ReadHead(src []byte, id *store.ID) (Head, error) {
	var h Head
	body, err := checked(src)
	if err != nil {
		return h, err
	}
	r := reader{b: body}
	copy(h.Revision[:], r.take(len(h.Revision)))
	h.NextAt = r.time()
	same := r.same(id.Tenant) && r.same(id.Principal) && r.same(id.Operation) && r.same(id.Key)
	switch {
	case r.bad:
		return Head{}, fmt.Errorf("%w: it ends within its head", ErrCorrupt)
	case !same:
		return Head{}, ErrOther
	}
	return h, nil
}

// ErrOther is returned by ReadHead for an intact record of another identity.
var ErrOther = fmt.Errorf("%w: it is the record of another identity", ErrCorrupt)

// checked verifies an encoded record's checksum and version and returns its fields.
func checked(src []byte) ([]byte, error) {
	if len(src) < 1+crc32.Size {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrCorrupt, len(src))
	}
	end := len(src) - crc32.Size
	if crc32.Checksum(src[:end], castagnoli) != binary.LittleEndian.Uint32(src[end:]) {
		return nil, fmt.Errorf("%w: the checksum is wrong", ErrCorrupt)
	}
	switch v := src[0]; {
	case v > Version:
		return nil, fmt.Errorf("%w (format %d, known up to %d)", ErrNewer, v, Version)
	case v == 0:
		return nil, fmt.Errorf("%w: there is no format 0", ErrCorrupt)
	}
	return src[1:end], nil
}

// reader takes fields off the front of b. After the first missing field it is bad and
// returns zero values.
type reader struct {
	b   []byte
	bad bool
	// newer: there is an unknown flag or word. The checksum is right, so a newer program
	// wrote it.
	newer bool
}

func (r *reader) record(rec *store.Record) error {
	copy(rec.Revision[:], r.take(len(rec.Revision)))
	rec.NextAt = r.time()
	rec.ID = store.ID{Tenant: r.text(), Principal: r.text(), Operation: r.text(), Key: r.text()}

	flags := r.known(knownRecordFlags)
	rec.State = number(r, lastState)
	rec.Disposition = number(r, lastDisposition)
	if flags&hasFingerprint != 0 {
		if err := rec.Fingerprint.UnmarshalBinary(r.take(33)); err != nil {
			r.bad = true
		}
	}
	rec.Principal = r.text()
	rec.Fence = r.varint()
	rec.Origin = r.varint()
	rec.Attempt = int(r.varint())
	rec.Holder = r.text()
	rec.CreatedAt = r.time()
	rec.UpdatedAt = r.time()
	rec.StartedAt = r.time()
	rec.EndedAt = r.time()
	rec.LeaseUntil = r.time()
	rec.ExpiresAt = r.time()
	rec.HeldReason = r.text()
	// The first programs that wrote format 1 had no flag: a reason meant that the call is held.
	// Read as running, it would run again. Later programs never write a reason without the
	// flag.
	rec.Held = flags&hasHeld != 0 || rec.State == store.Processing && rec.HeldReason != ""
	if flags&hasHeldFrom != 0 {
		copy(rec.HeldFrom[:], r.take(len(rec.HeldFrom)))
	}
	rec.Result = store.Result{Data: r.bytes(), Tombstone: flags&hasTombstone != 0}
	rec.Failure, rec.Settled = r.failure(flags), r.settled(flags)

	if n, isNil := r.count(minEffect); !isNil {
		rec.Effects = make([]store.EffectRecord, n)
		for i := range rec.Effects {
			r.effect(&rec.Effects[i])
		}
	}
	if n, isNil := r.count(minAttempt); !isNil {
		rec.Earlier = make([]store.AttemptRecord, n)
		for i := range rec.Earlier {
			r.attempt(&rec.Earlier[i])
		}
	}
	if len(r.b) > 0 {
		r.extras(rec)
	}
	switch {
	case r.newer: // it also explains everything unreadable after it
		return fmt.Errorf("%w (a member or a word of format %d that is not known)", ErrNewer, Version)
	case r.bad:
		return fmt.Errorf("%w: a field does not have its form", ErrCorrupt)
	case len(r.b) > 0:
		return fmt.Errorf("%w: %d bytes follow its last field", ErrCorrupt, len(r.b))
	}
	return nil
}

func (r *reader) effect(ef *store.EffectRecord) {
	flags := r.flags()
	ef.Name = r.text()
	ef.Key = r.text()
	ef.State = word(r, effectStates)
	ef.Fence = r.varint()
	ef.StartedAt = r.time()
	ef.SettledAt = r.time()
	ef.Result = store.Result{Data: r.bytes(), Tombstone: flags&hasTombstone != 0}
	ef.Failure, ef.Settled = r.failure(flags), r.settled(flags)
}

func (r *reader) attempt(a *store.AttemptRecord) {
	flags := r.flags()
	a.Number = int(r.varint())
	a.Fence = r.varint()
	a.Holder = r.text()
	a.Principal = r.text()
	a.Disposition = number(r, lastDisposition)
	a.StartedAt = r.time()
	a.EndedAt = r.time()
	a.Failure, a.Settled = r.failure(flags), r.settled(flags)
}

// take returns the next n bytes, or nil if there are fewer. Appending to the result copies it.
func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) flags() byte { return r.known(knownFlags) }

// known reads a byte of flags. If any other flag is set, the record is newer.
func (r *reader) known(flags byte) byte {
	f := r.byte()
	if f&^flags != 0 {
		r.unknown()
	}
	return f
}

// unknown marks the record as written by a newer program. After damage it does nothing, because
// nothing that follows can be trusted.
func (r *reader) unknown() { r.newer = r.newer || !r.bad }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// length reads a length and checks that as many bytes follow.
func (r *reader) length() int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

// text shares memory with r.b, which never changes: it belongs to the record that is
// being decoded, in parts that don't overlap.
func (r *reader) text() string {
	p := r.take(r.length())
	return unsafe.String(unsafe.SliceData(p), len(p))
}

func (r *reader) same(s string) bool {
	return string(r.take(r.length())) == s
}

func (r *reader) bytes() []byte {
	n, isNil := r.count(1)
	if isNil {
		return nil
	}
	return r.take(n)
}

// count reads the number of elements of at least size bytes each.
func (r *reader) count(size int) (n int, isNil bool) {
	c := r.uvarint()
	if c == 0 {
		return 0, true
	}
	if c-1 > uint64(len(r.b)/size) {
		r.bad, r.b = true, nil
		return 0, true
	}
	return int(c - 1), false
}

func (r *reader) time() store.Instant {
	nanos := r.uvarint()
	if nanos == 0 {
		return 0
	}
	sec := r.varint()
	i := store.Instant(sec*second + int64(nanos-1)) // wraps for times outside an Instant's range
	if s, n := split(i); s != sec || n != int64(nanos-1) || i == 0 {
		r.bad = true
		return 0
	}
	return i
}

func (r *reader) failure(flags byte) *store.Failure {
	if flags&hasFailure == 0 || r.bad {
		return nil
	}
	return &store.Failure{Code: r.text(), Message: r.text()}
}

func (r *reader) settled(flags byte) *store.Settled {
	if flags&hasSettled == 0 || r.bad {
		return nil
	}
	return &store.Settled{By: r.text(), Who: r.text(), Reason: r.text(), At: r.time()}
}

// number reads a word that is stored as its place in the vocabulary.
func number[W ~uint8](r *reader, last W) W {
	i := r.byte()
	switch {
	case i == 0:
		r.bad = true
		return 0
	case i-1 > byte(last):
		r.unknown()
		return 0
	}
	return W(i - 1)
}

// word reads a word that may be stored as its place or as text.
func word[W ~string](r *reader, words []W) W {
	i := r.byte()
	if i == 0 {
		return W(r.text())
	}
	if int(i) > len(words) {
		r.unknown()
		return ""
	}
	return words[i-1]
}
