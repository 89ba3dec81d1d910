package evidence

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/semelhq/semel"
)

// keyedDigest is half a SHA-256 with a key.
type keyedDigest [16]byte

// leaf is what an [Artifact] says, as an entry is made.
type leaf struct {
	// Those that most entries of a log have in common come first when packed, so
	// that a store which compresses finds them together.
	node        [8]byte // with count the id
	tenant      keyedDigest
	kind        string
	change      string
	decision    string
	disposition string
	durability  string
	reason      string
	state       string
	executed    verdict
	has         leafParts
	attempt     int64
	count       uint64
	at          semel.Instant
	fence       int64
	commitment  [32]byte
	fingerprint keyedDigest
	outcome     keyedDigest
	presented   keyedDigest
}

// verdict is whether a delivery was given the execution.
type verdict uint8

const (
	unsaid verdict = iota
	notExecuted
	executed
)

// leafParts says which of its digests a leaf has.
type leafParts uint8

const (
	hasFingerprint leafParts = 1 << iota
	hasOutcomeRef
	hasPresented
)

// texts are those of the leaf in the order in which they are packed.
func (l *leaf) texts() [7]*string {
	return [...]*string{&l.kind, &l.change, &l.decision, &l.disposition, &l.durability, &l.reason, &l.state}
}

// digests are what the leaf may have, in the order of leafParts.
func (l *leaf) digests() [3]*keyedDigest {
	return [...]*keyedDigest{&l.fingerprint, &l.outcome, &l.presented}
}

// pack appends the leaf as it is stored.
func (l *leaf) pack(b []byte) []byte {
	b = append(b, packedForm)
	b = append(b, l.node[:]...)
	b = append(b, l.tenant[:]...)
	for _, text := range l.texts() {
		b = appendFrame(b, *text)
	}
	b = append(b, byte(l.executed), byte(l.has))
	b = binary.AppendUvarint(b, uint64(l.attempt))
	b = binary.BigEndian.AppendUint64(b, l.count)
	b = binary.BigEndian.AppendUint64(b, uint64(l.at))
	b = binary.AppendUvarint(b, uint64(l.fence))
	b = append(b, l.commitment[:]...)
	for i, d := range l.digests() {
		if l.has&(1<<i) != 0 {
			b = append(b, d[:]...)
		}
	}
	return b
}

// unpack is the reverse of pack. It reports whether that is what it was given.
func (l *leaf) unpack(packed []byte) bool {
	var u unpacker
	u.begin(packed)
	u.fill(l.node[:])
	u.fill(l.tenant[:])
	for _, text := range l.texts() {
		*text = u.text()
	}
	l.executed = verdict(u.byte())
	l.has = leafParts(u.byte())
	l.attempt = int64(u.uvarint())
	l.count = u.uint64()
	l.at = semel.Instant(u.uint64())
	l.fence = int64(u.uvarint())
	u.fill(l.commitment[:])
	for i, d := range l.digests() {
		if l.has&(1<<i) != 0 {
			u.fill(d[:])
		}
	}
	return u.done()
}

// appendJSON appends the leaf in canonical JSON (RFC 8785): members in the order of
// their names, without white space.
func (l *leaf) appendJSON(b []byte, d *dates) []byte {
	b = append(b, `{"artifact_id":"ev_`...)
	b = hex.AppendEncode(b, l.node[:])
	b = appendHex16(b, l.count)
	b = append(b, `","artifact_type":"`...)
	b = append(b, l.kind...)
	b = append(b, `","commitment":"`...)
	b = hex.AppendEncode(b, l.commitment[:])
	b = append(b, `","emitted_at":"`...)
	b = d.append(b, l.at)
	b = append(b, `","payload":`...)
	start := len(b)
	if l.attempt != 0 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), l.attempt, 10)
	}
	b = appendWord(b, "change", l.change)
	b = appendWord(b, "decision", l.decision)
	b = appendWord(b, "disposition", l.disposition)
	b = appendWord(b, "durability", l.durability)
	switch l.executed {
	case executed:
		b = append(b, `,"executed":true`...)
	case notExecuted:
		b = append(b, `,"executed":false`...)
	}
	if l.fence != 0 {
		b = append(strconv.AppendInt(append(b, `,"fence":"`...), l.fence, 10), '"')
	}
	if l.has&hasFingerprint != 0 {
		b = appendHex(b, "fingerprint", "", l.fingerprint[:])
	}
	if l.has&hasOutcomeRef != 0 {
		b = appendHex(b, "outcome_ref", "out_", l.outcome[:])
	}
	if l.has&hasPresented != 0 {
		b = appendHex(b, "presented_fingerprint", "", l.presented[:])
	}
	b = appendWord(b, "reason", l.reason)
	b = appendWord(b, "state", l.state)
	if len(b) == start {
		b = append(b, '{')
	} else {
		b[start] = '{' // instead of the first comma
	}
	b = append(b, `},"tenant_id":"`...)
	b = append(b, tenantPrefix...)
	b = hex.AppendEncode(b, l.tenant[:])
	return append(b, `","v":1}`...)
}

// tenantPrefix begins the blinded names of tenants.
const tenantPrefix = "tn_"

// dates writes instants, most of which are within the same second as the one before.
type dates struct {
	text   []byte // of the second, without a zone
	second int64
}

// append appends an instant as [time.RFC3339Nano] has it.
func (d *dates) append(b []byte, at semel.Instant) []byte {
	t := at.Time()
	if second := t.Unix(); second != d.second || len(d.text) == 0 {
		d.second, d.text = second, t.AppendFormat(d.text[:0], "2006-01-02T15:04:05")
	}
	b = append(b, d.text...)
	if rest := t.Nanosecond(); rest != 0 {
		start := len(b)
		b = strconv.AppendInt(b, int64(rest)+int64(time.Second), 10) // nine digits, after a 1
		b[start] = '.'
		b = bytes.TrimRight(b, "0")
	}
	return append(b, 'Z')
}
