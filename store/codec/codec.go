// Package codec is the binary form of a [store.Record] that stores keep.
//
// A record is written as a format version, the fields in a fixed order, and a
// CRC-32C of all bytes before it. Every format ends with that checksum, so
// damage can be told from the format of a newer program. A record contains its
// own identity, so a store notices if it finds one under another key.
//
// Numbers are varints. Text and bytes are preceded by their length; where nil
// and empty differ, by their length plus one, with 0 for nil. An instant is its
// nanoseconds plus one, then its seconds since 1970; none is a single 0.
// Words from a small vocabulary are one byte, their place in a list that only
// ever grows, plus one; the state of an effect, a message or a compensation may also be
// any other word, as 0 and its text. Optional members come last, after a byte of flags
// that says which; a record without any ends before it. An unknown flag or word belongs
// to a newer program and isn't damage.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/semelhq/semel/store"
)

// Version is the newest format. Decode reads it and all earlier ones. Append writes the
// earliest one that can hold the record, so that programs of the version before can read what
// has nothing new.
//
// Format 1 got members that are marked by flags, which an earlier program refuses, and the flag
// for held records, see [Decode]. Format 2 adds marks of sequences and RefusedUntil.
//
// If you change the meaning of the bytes, take a new number and add files to testdata that
// never change: see TestRecorded.
const Version = 2

// versionOf returns the format to write a record in.
func versionOf(r *store.Record) byte {
	if r.Mark != nil || r.RefusedUntil != 0 {
		return 2
	}
	return 1
}

// ErrCorrupt is wrapped by Decode's error if Append didn't write these bytes.
var ErrCorrupt = errors.New("the stored record is damaged")

// ErrNewer is wrapped by Decode's error if a newer program wrote the format.
var ErrNewer = errors.New("the stored record has a format that is newer than this program: use the program that wrote it, or a later one")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The vocabularies. A word is stored as its place, which for states and dispositions is their
// number. Add words only at the end.
const (
	lastState       = store.Failed
	lastDisposition = store.DispositionAbandoned
)

var effectStates = []store.EffectState{"", store.EffectStarted, store.EffectConfirmed, store.EffectRefuted}

// The bits of a record's or effect's flags: members that are usually absent.
const (
	hasFingerprint = 1 << iota
	hasFailure
	hasTombstone
	hasSettled
	knownFlags = 1<<iota - 1

	// Flags of records only.
	hasHeldFrom      = knownFlags + 1
	hasHeld          = hasHeldFrom << 1
	knownRecordFlags = knownFlags | hasHeldFrom | hasHeld
)

// Append appends the encoded record to dst. The error is reserved for a record
// that the format cannot hold; there is none today.
func Append(dst []byte, r *store.Record) ([]byte, error) {
	start := len(dst)
	b := append(dst, versionOf(r))
	b = append(b, r.Revision[:]...)
	b = appendTime(b, r.NextAt)
	b = appendText(b, r.ID.Tenant)
	b = appendText(b, r.ID.Principal)
	b = appendText(b, r.ID.Operation)
	b = appendText(b, r.ID.Key)

	flags := flagsOf(!r.Fingerprint.IsZero(), r.Failure, r.Result, r.Settled)
	if !r.HeldFrom.IsZero() {
		flags |= hasHeldFrom
	}
	if r.Held {
		flags |= hasHeld
	}
	b = append(b, flags)
	b = append(b, byte(r.State)+1, byte(r.Disposition)+1)
	if !r.Fingerprint.IsZero() {
		var err error
		if b, err = r.Fingerprint.AppendBinary(b); err != nil {
			return dst, fmt.Errorf("fingerprint: %w", err)
		}
	}
	b = appendText(b, r.Principal)
	b = binary.AppendVarint(b, r.Fence)
	b = binary.AppendVarint(b, r.Origin)
	b = binary.AppendVarint(b, int64(r.Attempt))
	b = appendText(b, r.Holder)
	b = appendTime(b, r.CreatedAt)
	b = appendTime(b, r.UpdatedAt)
	b = appendTime(b, r.StartedAt)
	b = appendTime(b, r.EndedAt)
	b = appendTime(b, r.LeaseUntil)
	b = appendTime(b, r.ExpiresAt)
	b = appendText(b, r.HeldReason)
	if flags&hasHeldFrom != 0 {
		b = append(b, r.HeldFrom[:]...)
	}
	b = appendBytes(b, r.Result.Data)
	b = appendSettled(appendFailure(b, r.Failure), r.Settled)

	b = appendCount(b, len(r.Effects), r.Effects == nil)
	for i := range r.Effects {
		b = appendEffect(b, &r.Effects[i])
	}
	b = appendCount(b, len(r.Earlier), r.Earlier == nil)
	for i := range r.Earlier {
		b = appendAttempt(b, &r.Earlier[i])
	}
	b = appendExtras(b, r)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

func appendEffect(b []byte, ef *store.EffectRecord) []byte {
	b = append(b, flagsOf(false, ef.Failure, ef.Result, ef.Settled))
	b = appendText(b, ef.Name)
	b = appendText(b, ef.Key)
	b = appendWord(b, effectStates, ef.State)
	b = binary.AppendVarint(b, ef.Fence)
	b = appendTime(b, ef.StartedAt)
	b = appendTime(b, ef.SettledAt)
	b = appendBytes(b, ef.Result.Data)
	return appendSettled(appendFailure(b, ef.Failure), ef.Settled)
}

func appendAttempt(b []byte, a *store.AttemptRecord) []byte {
	b = append(b, flagsOf(false, a.Failure, store.Result{}, a.Settled))
	b = binary.AppendVarint(b, int64(a.Number))
	b = binary.AppendVarint(b, a.Fence)
	b = appendText(b, a.Holder)
	b = appendText(b, a.Principal)
	b = append(b, byte(a.Disposition)+1)
	b = appendTime(b, a.StartedAt)
	b = appendTime(b, a.EndedAt)
	return appendSettled(appendFailure(b, a.Failure), a.Settled)
}

func flagsOf(fingerprint bool, f *store.Failure, res store.Result, s *store.Settled) byte {
	var flags byte
	if fingerprint {
		flags |= hasFingerprint
	}
	if f != nil {
		flags |= hasFailure
	}
	if res.Tombstone {
		flags |= hasTombstone
	}
	if s != nil {
		flags |= hasSettled
	}
	return flags
}

// appendFailure writes nothing for nil: the flags say so.
func appendFailure(b []byte, f *store.Failure) []byte {
	if f == nil {
		return b
	}
	return appendText(appendText(b, f.Code), f.Message)
}

// appendSettled writes nothing for nil: the flags say so.
func appendSettled(b []byte, s *store.Settled) []byte {
	if s == nil {
		return b
	}
	return appendTime(appendText(appendText(appendText(b, s.By), s.Who), s.Reason), s.At)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBytes(b, data []byte) []byte {
	b = appendCount(b, len(data), data == nil)
	return append(b, data...)
}

func appendCount(b []byte, n int, isNil bool) []byte {
	if isNil {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(n)+1)
}

func appendTime(b []byte, i store.Instant) []byte {
	if i == 0 {
		return append(b, 0)
	}
	sec, nanos := split(i)
	b = binary.AppendUvarint(b, uint64(nanos)+1)
	return binary.AppendVarint(b, sec)
}

const second = int64(time.Second)

// split returns i as whole seconds and the remaining nanoseconds.
func split(i store.Instant) (sec, nanos int64) {
	sec, nanos = int64(i)/second, int64(i)%second
	if nanos < 0 {
		return sec - 1, nanos + second
	}
	return sec, nanos
}

func appendWord[W ~string](b []byte, words []W, w W) []byte {
	if i := slices.Index(words, w); i >= 0 {
		return append(b, byte(i)+1)
	}
	return appendText(append(b, 0), string(w))
}
