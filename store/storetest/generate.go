package storetest

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
)

// Bounds of identities, as the engine enforces them.
const (
	maxKey  = semel.MaxKeyLen
	maxName = 256
	// A principal may be followed by the scope of its call.
	maxScoped = maxName + 131
)

// drawName is a text as the engine lets it into an identity: UTF-8 without NUL,
// of at most limit bytes, with a liking for what stores and file systems trip
// over.
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

// drawText is a text that nobody has checked: the words of a handler's error.
func drawText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\xff\xfe", "line\nline", strings.Repeat("long ", 2000)}),
	)
}

// drawTime is an instant to the nanosecond, or none.
func drawTime() *rapid.Generator[semel.Instant] {
	lo, hi := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	return rapid.Custom(func(t *rapid.T) semel.Instant {
		if rapid.IntRange(0, 3).Draw(t, "zero") == 0 {
			return 0
		}
		nsec := rapid.OneOf(rapid.Int64Range(0, 999_999_999), rapid.SampledFrom([]int64{0, 1, 999, 1000, 999_999_999})).Draw(t, "nsec")
		return semel.InstantOf(time.Unix(rapid.Int64Range(lo, hi).Draw(t, "sec"), nsec))
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

func drawFailure() *rapid.Generator[*semel.Failure] {
	return rapid.Ptr(rapid.Custom(func(t *rapid.T) semel.Failure {
		return semel.Failure{Code: drawText().Draw(t, "code"), Message: drawText().Draw(t, "message")}
	}), true)
}

func drawResult() *rapid.Generator[semel.Result] {
	return rapid.Custom(func(t *rapid.T) semel.Result {
		r := semel.Result{Tombstone: rapid.Bool().Draw(t, "tombstone")}
		switch rapid.IntRange(0, 3).Draw(t, "data") {
		case 0: // nil: no result
		case 1:
			r.Data = []byte{}
		case 2:
			r.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		case 3:
			r.Data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte"), 0}, rapid.IntRange(1, 40_000).Draw(t, "length"))
		}
		return r
	})
}

var (
	drawState = rapid.SampledFrom([]semel.State{semel.Processing, semel.Completed, semel.Failed})
	drawEnd   = rapid.SampledFrom([]semel.Disposition{
		0, semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned,
	})
	drawEffectState = rapid.SampledFrom([]semel.EffectState{semel.EffectStarted, semel.EffectConfirmed, semel.EffectRefuted})
)

func drawFingerprint() *rapid.Generator[semel.Fingerprint] {
	return rapid.Custom(func(t *rapid.T) semel.Fingerprint {
		if rapid.Bool().Draw(t, "unset") {
			return semel.Fingerprint{}
		}
		return semel.FingerprintOf(semel.Scheme(rapid.Uint8().Draw(t, "scheme")), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
	})
}

func drawEffect() *rapid.Generator[semel.EffectRecord] {
	return rapid.Custom(func(t *rapid.T) semel.EffectRecord {
		return semel.EffectRecord{
			Name: drawName(maxName).Draw(t, "name"), Key: drawName(43).Draw(t, "effect key"), State: drawEffectState.Draw(t, "effect state"),
			Fence: rapid.Int64().Draw(t, "fence"), Result: drawResult().Draw(t, "effect result"), Failure: drawFailure().Draw(t, "failure"),
			StartedAt: drawTime().Draw(t, "started"), SettledAt: drawTime().Draw(t, "settled"),
		}
	})
}

func drawEarlier() *rapid.Generator[semel.AttemptRecord] {
	return rapid.Custom(func(t *rapid.T) semel.AttemptRecord {
		return semel.AttemptRecord{
			Number: rapid.IntRange(1, 1<<40).Draw(t, "number"), Fence: rapid.Int64().Draw(t, "fence"), Holder: drawText().Draw(t, "holder"),
			Principal: drawName(maxName).Draw(t, "principal"), Disposition: drawEnd.Draw(t, "disposition"), Failure: drawFailure().Draw(t, "failure"),
			StartedAt: drawTime().Draw(t, "started"), EndedAt: drawTime().Draw(t, "ended"),
		}
	})
}

// drawRecord is a record in which every field may hold anything that the engine
// could write, in any combination, under a fresh revision.
func drawRecord() *rapid.Generator[semel.Record] {
	return rapid.Custom(func(t *rapid.T) semel.Record {
		return semel.Record{
			ID: drawID().Draw(t, "id"), Revision: fresh(), State: drawState.Draw(t, "state"), Disposition: drawEnd.Draw(t, "disposition"),
			Fingerprint: drawFingerprint().Draw(t, "fingerprint"), Principal: drawName(maxName).Draw(t, "principal"), BoundTo: drawName(maxName).Draw(t, "bound to"), Door: drawName(32).Draw(t, "door"),
			Fence: rapid.Int64().Draw(t, "fence"), Origin: rapid.Int64().Draw(t, "origin"), Attempt: rapid.IntRange(1, 1<<40).Draw(t, "attempt"),
			Holder: drawText().Draw(t, "holder"), Held: drawText().Draw(t, "held"),
			CreatedAt: drawTime().Draw(t, "created"), UpdatedAt: drawTime().Draw(t, "updated"), StartedAt: drawTime().Draw(t, "started"),
			EndedAt: drawTime().Draw(t, "ended"), LeaseUntil: drawTime().Draw(t, "lease"), ExpiresAt: drawTime().Draw(t, "expires"),
			NextAt: drawTime().Draw(t, "next"), Result: drawResult().Draw(t, "result"), Failure: drawFailure().Draw(t, "failure"),
			Effects: rapid.SliceOfN(drawEffect(), 0, 4).Draw(t, "effects"), Earlier: rapid.SliceOfN(drawEarlier(), 0, semel.MaxEarlier).Draw(t, "earlier"),
			Attributes: drawAttributes().Draw(t, "attributes"), Confirmation: drawConfirmation().Draw(t, "confirmation"),
			Outbox: rapid.SliceOfN(drawMessage(), 0, 3).Draw(t, "outbox"), Compensation: drawCompensation().Draw(t, "compensation"),
			Policy: drawPolicy().Draw(t, "policy"),
		}
	})
}
