package storetest

import (
	"bytes"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Bounds of identities, as enforced by the engine.
const (
	maxKey  = semel.MaxKeyLen
	maxName = 256
	// A call's scope may follow its principal.
	maxScoped = maxName + 131
)

// drawName draws a text that the engine accepts in an identity: UTF-8 without NUL, at most
// limit bytes. Many are texts that stores and file systems often mishandle.
func drawName(limit int) *rapid.Generator[string] {
	odd := rapid.SampledFrom([]string{
		"", "a", "A", "é", "e\u0301", "ß", "SS", "İ", "ı", " a", "a ", "\t", "\n", "\r\n", "\x01", "\x7f", "\ufeff", "\u202e",
		"/", "../..", "%00", "%", "_", "*", "?", "'", "\"", "`", "\\", "--", ";", "{slot}", "a:b", "a|b", "a,b", "\U0001f512", "\U0010ffff",
	})
	return rapid.Custom(func(t *rapid.T) string {
		var s string
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			s = odd.Draw(t, "odd")
		case 1:
			s = strings.Join(rapid.SliceOfN(odd, 1, 8).Draw(t, "odd parts"), "")
		case 2:
			s = strings.ReplaceAll(rapid.String().Draw(t, "text"), "\x00", "0")
		case 3:
			s = strings.Repeat(rapid.SampledFrom([]string{"k", "é", "\xf0\x9f\x94\x92"}).Draw(t, "unit"), limit)
		}
		for len(s) > limit || !utf8.ValidString(s) {
			s = s[:min(len(s)-1, limit)]
		}
		return s
	})
}

// drawText draws a text that the engine doesn't check, such as a handler's error message.
func drawText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\xff\xfe", "line\nline", strings.Repeat("long ", 2000)}),
	)
}

// drawTime draws an instant to the nanosecond, or none.
func drawTime() *rapid.Generator[store.Instant] {
	lo, hi := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	return rapid.Custom(func(t *rapid.T) store.Instant {
		if rapid.IntRange(0, 3).Draw(t, "zero") == 0 {
			return 0
		}
		nsec := rapid.OneOf(rapid.Int64Range(0, 999_999_999), rapid.SampledFrom([]int64{0, 1, 999, 1000, 999_999_999})).Draw(t, "nsec")
		return store.InstantOf(time.Unix(rapid.Int64Range(lo, hi).Draw(t, "sec"), nsec))
	})
}

func drawID() *rapid.Generator[semel.ID] {
	return rapid.Custom(func(t *rapid.T) semel.ID {
		id := semel.ID{
			Tenant: drawName(maxName).Draw(t, "tenant"), Principal: drawName(maxScoped).Draw(t, "principal"),
			Operation: drawName(maxName).Draw(t, "operation"), Key: drawName(maxKey).Draw(t, "key"),
		}
		if id.Operation == "" {
			id.Operation = "operation"
		}
		if id.Key == "" {
			id.Key = "key"
		}
		return id
	})
}

// drawData draws nil, which means no result, or bytes, few or many.
func drawData() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		switch rapid.IntRange(0, 3).Draw(t, "data") {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		}
		return bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte"), 0}, rapid.IntRange(1, 40_000).Draw(t, "length"))
	})
}

func drawFingerprint() *rapid.Generator[semel.Fingerprint] {
	return rapid.Custom(func(t *rapid.T) semel.Fingerprint {
		if rapid.Bool().Draw(t, "unset") {
			return semel.Fingerprint{}
		}
		return semel.FingerprintOf(store.Scheme(rapid.Uint8().Draw(t, "scheme")), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
	})
}

// fields says how to draw the fields of a record, by their types. So a new field is drawn
// without being named here.
var fields = rapid.MakeConfig{
	Kinds: map[reflect.Kind]*rapid.Generator[any]{
		reflect.String: drawName(maxName).AsAny(),
		reflect.Int:    rapid.IntRange(0, 1<<40).AsAny(),
	},
	Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[semel.ID]():          drawID().AsAny(),
		reflect.TypeFor[store.Instant]():     drawTime().AsAny(),
		reflect.TypeFor[[]byte]():            drawData().AsAny(),
		reflect.TypeFor[semel.Fingerprint](): drawFingerprint().AsAny(),
		reflect.TypeFor[store.Attributes]():  rapid.MapOfN(drawName(64), drawName(1<<10), 0, semel.MaxAttributes).AsAny(),
		reflect.TypeFor[semel.State]():       rapid.SampledFrom([]semel.State{semel.Processing, semel.Completed, semel.Failed}).AsAny(),
		reflect.TypeFor[store.Disposition](): rapid.SampledFrom([]store.Disposition{
			0, semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned,
		}).AsAny(),
		reflect.TypeFor[store.EffectState](): rapid.SampledFrom([]store.EffectState{
			store.EffectStarted, store.EffectConfirmed, store.EffectRefuted,
		}).AsAny(),
		reflect.TypeFor[store.MessageState](): rapid.SampledFrom([]store.MessageState{
			store.MessagePending, store.MessageDelivered, store.MessageParked, store.MessageDiscarded,
		}).AsAny(),
		reflect.TypeFor[store.CompensationState](): rapid.SampledFrom([]store.CompensationState{
			store.CompensationStarted, store.CompensationDone, store.CompensationFailed,
		}).AsAny(),
	},
	Fields: map[reflect.Type]map[string]*rapid.Generator[any]{
		reflect.TypeFor[store.Failure]():       {"Code": drawText().AsAny(), "Message": drawText().AsAny()},
		reflect.TypeFor[store.AttemptRecord](): {"Holder": drawText().AsAny()},
		reflect.TypeFor[store.Compensation]():  {"Reason": drawText().AsAny(), "Key": drawName(maxKey).AsAny()},
		reflect.TypeFor[store.Policy]():        {"MaxResult": rapid.Int().AsAny()},
		reflect.TypeFor[store.Result]():        {"Attributes": rapid.Just[store.Attributes](nil).AsAny()}, // no stored result has them
	},
}

// listOf draws up to limit elements, or nil.
func listOf[T any](limit int) *rapid.Generator[any] {
	some := rapid.SliceOfN(rapid.MakeCustom[T](fields), 1, limit)
	return rapid.OneOf(rapid.Just[[]T](nil), some).AsAny()
}

// drawRecord draws a record in which every field may have any value that the engine could
// write, in any combination.
var drawRecord = func() *rapid.Generator[semel.Record] {
	fields.Fields[reflect.TypeFor[store.Confirmation]()] = map[string]*rapid.Generator[any]{"Tokens": listOf[store.ConfirmationToken](4)}
	fields.Fields[reflect.TypeFor[semel.Record]()] = map[string]*rapid.Generator[any]{
		"Holder": drawText().AsAny(), "HeldReason": drawText().AsAny(),
		"Effects": listOf[store.EffectRecord](4), "Earlier": listOf[store.AttemptRecord](store.MaxEarlier), "Outbox": listOf[semel.Message](3),
	}
	return rapid.Map(rapid.MakeCustom[semel.Record](fields), func(r semel.Record) semel.Record {
		r.Held = r.Held || r.State == semel.Processing && r.HeldReason != "" // no record has only a reason
		return r
	})
}()
