package evidence

import (
	"encoding/hex"
	"strconv"

	"github.com/semelhq/semel"
)

// opening is what an [Opening] says, as an entry is made.
type opening struct {
	// As in a leaf, what entries have in common comes first.
	has                openingParts
	operation          string
	tenant             string
	principal          string
	failureCode        string
	reason             string
	key                string
	commandID          string
	correlationID      string
	item               string
	presentedBy        string
	presentedCommandID string
	salt               [16]byte
	fingerprint        [33]byte // its scheme and its digest
	presented          [33]byte
	outcome            [32]byte
}

// openingParts says which digests an opening has.
type openingParts uint8

const (
	opensFingerprint openingParts = 1 << iota
	opensPresented
	opensOutcome
)

// set notes a fingerprint, if there is one.
func (o *opening) set(to *[33]byte, part openingParts, fp *semel.Fingerprint) {
	if !fp.IsZero() {
		o.has |= part
		_, _ = fp.AppendBinary(to[:0]) // which has a fixed form
	}
}

// texts are those of the opening in the order in which they are packed.
func (o *opening) texts() [11]*string {
	return [...]*string{
		&o.operation, &o.tenant, &o.principal, &o.failureCode, &o.reason,
		&o.key, &o.commandID, &o.correlationID, &o.item, &o.presentedBy, &o.presentedCommandID,
	}
}

// digests are what the opening may have, in the order of openingParts.
func (o *opening) digests() [3][]byte {
	return [...][]byte{o.fingerprint[:], o.presented[:], o.outcome[:]}
}

// pack appends the opening as it is stored.
func (o *opening) pack(b []byte) []byte {
	b = append(b, packedForm, byte(o.has))
	for _, text := range o.texts() {
		b = appendFrame(b, *text)
	}
	b = append(b, o.salt[:]...)
	for i, d := range o.digests() {
		if o.has&(1<<i) != 0 {
			b = append(b, d...)
		}
	}
	return b
}

// unpack is the reverse of pack. It reports whether that is what it was given.
func (o *opening) unpack(packed []byte) bool {
	var u unpacker
	u.begin(packed)
	o.has = openingParts(u.byte())
	for _, text := range o.texts() {
		*text = u.text()
	}
	u.fill(o.salt[:])
	for i, d := range o.digests() {
		if o.has&(1<<i) != 0 {
			u.fill(d)
		}
	}
	return u.done()
}

// appendJSON appends the opening in canonical JSON.
func (o *opening) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendMember(b, "command_id", o.commandID)
	b = appendMember(b, "correlation_id", o.correlationID)
	b = appendMember(b, "failure_code", o.failureCode)
	if o.has&opensFingerprint != 0 {
		b = appendFingerprint(b, "fingerprint", &o.fingerprint)
	}
	b = appendText(append(b, `,"idempotency_key":`...), o.key)
	b = appendMember(b, "item", o.item)
	b = appendText(append(b, `,"operation":`...), o.operation)
	if o.has&opensOutcome != 0 {
		b = appendHex(b, "outcome_sha256", "", o.outcome[:])
	}
	b = appendMember(b, "presented_by", o.presentedBy)
	b = appendMember(b, "presented_command_id", o.presentedCommandID)
	if o.has&opensPresented != 0 {
		b = appendFingerprint(b, "presented_fingerprint", &o.presented)
	}
	b = appendText(append(b, `,"principal":`...), o.principal)
	b = appendMember(b, "reason", o.reason)
	b = appendHex(b, "salt", "", o.salt[:])
	b = appendText(append(b, `,"tenant_id":`...), o.tenant)
	b[start] = '{' // instead of the first comma
	return append(b, '}')
}

// appendFingerprint appends a member with a fingerprint as it is.
func appendFingerprint(b []byte, name string, fp *[33]byte) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	b = append(strconv.AppendUint(b, uint64(fp[0]), 10), ':')
	return append(hex.AppendEncode(b, fp[1:]), '"')
}
