package evidence

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"

	"github.com/semelhq/semel"
)

// Names of the attributes that openings have.
const attributeCorrelationID = "correlation_id"

// facts is what one entry says.
type facts struct {
	kind     Type
	change   semel.Change
	decision string
	executed verdict
	reason   string
	state    string

	rec         *semel.Record
	attempt     int // those of another attempt than the newest
	fence       int64
	disposition semel.Disposition

	call  *semel.Call // the delivery, where it changed nothing
	item  string      // for the opening
	why   string
	at    semel.Instant
	level semel.Level
}

type verdict uint8

const (
	unsaid verdict = iota
	notExecuted
	executed
)

// maker makes entries. It is used by one goroutine at a time, and is big only to
// make none of what it needs again.
type maker struct {
	log    *Log
	plain  hash.Hash
	sum    [sha256.Size]byte
	frame  [512]byte
	salts  [512]byte
	facts  facts
	date   []byte // of the second, without a zone
	second int64
	used   int
	space  int // of an entry, about
	hashed [512]byte
	// slab is what entries are made in, one after the other. Entries go soon, as
	// they came.
	slab []byte
}

const slabBytes = 8 << 10

func newMaker(l *Log) *maker {
	m := &maker{log: l, plain: sha256.New(), space: 640}
	m.used = len(m.salts)
	return m
}

// release gives m back. It remembers no record.
func (m *maker) release() {
	m.facts = facts{}
	m.log.makers.Put(m)
}

// keyed is a keyed digest of data: the first half of the SHA-256 of the domain's key and
// the data. Half of it is withheld, so nobody can continue it to that of longer data,
// which is what HMAC would be for, at three times the price.
func (m *maker) keyed(d domain, data []byte) []byte {
	m.sum = sha256.Sum256(append(append(m.hashed[:0], m.log.domains[d][:]...), data...))
	return m.sum[:16]
}

// domain is what a keyed digest is of.
type domain uint8

const (
	domainTenant domain = iota
	domainFingerprint
	domainOutcome
	domainCommand
	domainIdentity
	domainCount
)

// domainKeys derives a key for each domain from the secret. With 16 bytes most of what
// is hashed with one fits into a block of SHA-256.
func (k *Keys) domainKeys() (keys [domainCount][16]byte) {
	for d := range keys {
		sum := sha256.Sum256(append(k.secret[:], byte(d)))
		copy(keys[d][:], sum[:])
	}
	return keys
}

func appendFrame(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// subjectOf is what the entries of a command are found by, or those of an identity
// where there is none.
func (m *maker) subjectOf(id *semel.ID, command string) (s semel.Subject) {
	b := appendFrame(m.frame[:0], id.Tenant)
	if command != "" {
		copy(s[:], m.keyed(domainCommand, appendFrame(b, command)))
		return s
	}
	b = appendFrame(b, id.Principal)
	b = appendFrame(b, id.Operation)
	copy(s[:], m.keyed(domainIdentity, appendFrame(b, id.Key)))
	return s
}

// tenant is the blinded name of a tenant.
func (m *maker) tenant(name string) string {
	if blinded, ok := m.log.tenants.Load(name); ok {
		return blinded.(string)
	}
	blinded := "tn_" + hex.EncodeToString(m.keyed(domainTenant, append(m.frame[:0], name...)))
	if m.log.tenantCount.Add(1) <= maxTenants {
		m.log.tenants.Store(name, blinded)
	}
	return blinded
}

// maxTenants is how many blinded names are remembered.
const maxTenants = 1 << 14

// salt is 16 random bytes.
func (m *maker) salt() []byte {
	if m.used+16 > len(m.salts) {
		_, _ = rand.Read(m.salts[:]) // which never fails, it ends the program
		m.used = 0
	}
	m.used += 16
	return m.salts[m.used-16 : m.used]
}

// fingerprint appends a member with the keyed digest of a fingerprint, if there is
// one.
func (m *maker) fingerprint(b []byte, name string, fp *semel.Fingerprint) []byte {
	if fp.IsZero() {
		return b
	}
	raw, _ := fp.AppendBinary(m.frame[:0]) // which has a fixed form
	return appendHex(b, name, "", m.keyed(domainFingerprint, raw))
}

// plainFingerprint appends a member with a fingerprint as it is, if there is one.
func (m *maker) plainFingerprint(b []byte, name string, fp *semel.Fingerprint) []byte {
	if fp.IsZero() {
		return b
	}
	raw, _ := fp.AppendBinary(m.frame[:0])
	b = append(append(append(b, `,"`...), name...), `":"`...)
	b = append(strconv.AppendUint(b, uint64(raw[0]), 10), ':')
	return append(hex.AppendEncode(b, raw[1:]), '"')
}

// entry makes an entry. The members of both parts are written in the order of their
// names, without white space, as RFC 8785 has it.
func (m *maker) entry(f *facts) semel.Entry {
	rec := f.rec
	var outcome [sha256.Size]byte
	told := hasOutcome(rec) && f.attempt == 0
	if told {
		outcome = m.outcome(rec)
	}
	// Opening and leaf share one piece of memory, about as long as the last one. Each
	// comes after what is hashed with it.
	b := append(m.room(), commitPrefix...)
	b = m.opening(b, f, told, outcome[:])
	opened := len(b)
	sum := sha256.Sum256(b)
	b = append(b, leafMark)
	leaf := len(b)
	b = append(b, `{"artifact_id":"ev_`...)
	b = append(b, m.log.prefix...)
	b = appendHex16(b, m.log.count.Add(1))
	b = append(b, `","artifact_type":"`...)
	b = append(b, f.kind...)
	b = append(b, `","commitment":"`...)
	b = hex.AppendEncode(b, sum[:])
	b = append(b, `","emitted_at":"`...)
	b = m.time(b, f.at)
	b = append(b, `","payload":`...)
	start := len(b)
	attempt, fence, disposition := rec.Attempt, rec.Fence, rec.Disposition
	if f.attempt != 0 {
		attempt, fence, disposition = f.attempt, f.fence, f.disposition
	}
	if attempt != 0 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(attempt), 10)
	}
	b = appendWord(b, "change", string(f.change))
	b = appendWord(b, "decision", f.decision)
	b = appendWord(b, "disposition", disposition.String())
	b = appendWord(b, "durability", string(f.level))
	switch f.executed {
	case executed:
		b = append(b, `,"executed":true`...)
	case notExecuted:
		b = append(b, `,"executed":false`...)
	}
	if fence != 0 {
		b = append(strconv.AppendInt(append(b, `,"fence":"`...), fence, 10), '"')
	}
	if f.delivered() {
		b = m.fingerprint(b, "fingerprint", &rec.Fingerprint)
	}
	if told {
		b = appendHex(b, "outcome_ref", "out_", m.keyed(domainOutcome, outcome[:]))
	}
	if f.presents() {
		b = m.fingerprint(b, "presented_fingerprint", &f.call.Fingerprint)
	}
	b = appendWord(b, "reason", f.reason)
	b = appendWord(b, "state", f.state)
	if len(b) == start {
		b = append(b, '{')
	} else {
		b[start] = '{' // instead of the first comma
	}
	b = append(b, `},"tenant_id":"`...)
	b = append(b, m.tenant(rec.ID.Tenant)...)
	b = append(b, `","v":1}`...)
	m.use(b)
	return semel.Entry{
		Leaf: b[leaf:len(b):len(b)], Opening: b[len(commitPrefix):opened:opened], Hash: sha256.Sum256(b[opened:]),
		Subject: m.subjectOf(&rec.ID, rec.Attributes[semel.AttributeCommandID]),
	}
}

// time appends an instant as [time.RFC3339Nano] has it. Most are within the same second
// as the one before.
func (m *maker) time(b []byte, at semel.Instant) []byte {
	t := at.Time()
	if second := t.Unix(); second != m.second || len(m.date) == 0 {
		m.second, m.date = second, t.AppendFormat(m.date[:0], "2006-01-02T15:04:05")
	}
	b = append(b, m.date...)
	if rest := t.Nanosecond(); rest != 0 {
		start := len(b)
		b = strconv.AppendInt(b, int64(rest+1e9), 10) // nine digits, after a 1
		b[start] = '.'
		b = bytes.TrimRight(b, "0")
	}
	return append(b, 'Z')
}

// room is where the next entry is made: most likely there is enough of it.
func (m *maker) room() []byte {
	if cap(m.slab)-len(m.slab) < m.space {
		m.slab = make([]byte, 0, slabBytes)
	}
	return m.slab[len(m.slab):]
}

// use takes note of what was made in the room.
func (m *maker) use(b []byte) {
	if cap(b) == cap(m.slab)-len(m.slab) { // or else it has found room elsewhere
		m.slab = m.slab[:len(m.slab)+len(b)]
	}
	m.space = min(max(len(b)+8, m.space-8), slabBytes) // a longer one is soon forgotten
}

// delivered reports whether the entry is about a delivery. Only those say what was
// delivered: it is the same for all that becomes of it, which has the same fence.
func (f *facts) delivered() bool {
	switch f.change {
	case semel.ChangeEnded, semel.ChangeHeld, semel.ChangeEffect, semel.ChangeMessage, semel.ChangeCompensation, semel.ChangePurged:
		return f.decision != ""
	}
	return true
}

// presents reports whether the delivery came with another payload.
func (f *facts) presents() bool { return f.call != nil && f.call.Fingerprint != f.rec.Fingerprint }

func (m *maker) opening(b []byte, f *facts, told bool, outcome []byte) []byte {
	rec := f.rec
	start := len(b)
	command := rec.Attributes[semel.AttributeCommandID]
	b = appendMember(b, "command_id", command)
	b = appendMember(b, "correlation_id", rec.Attributes[attributeCorrelationID])
	if rec.Failure != nil && f.attempt == 0 {
		b = appendMember(b, "failure_code", rec.Failure.Code)
	}
	if f.delivered() {
		b = m.plainFingerprint(b, "fingerprint", &rec.Fingerprint)
	}
	b = appendText(append(b, `,"idempotency_key":`...), rec.ID.Key)
	b = appendMember(b, "item", f.item)
	b = appendText(append(b, `,"operation":`...), rec.ID.Operation)
	if told {
		b = appendHex(b, "outcome_sha256", "", outcome)
	}
	if f.call != nil {
		if by := f.call.Principal; by != rec.Principal {
			b = appendMember(b, "presented_by", by)
		}
		if id := f.call.Attributes[semel.AttributeCommandID]; id != command {
			b = appendMember(b, "presented_command_id", id)
		}
		if f.presents() {
			b = m.plainFingerprint(b, "presented_fingerprint", &f.call.Fingerprint)
		}
	}
	b = appendText(append(b, `,"principal":`...), cmp.Or(rec.Principal, rec.ID.Principal))
	b = appendMember(b, "reason", f.why)
	b = appendHex(b, "salt", "", m.salt())
	b = appendText(append(b, `,"tenant_id":`...), rec.ID.Tenant)
	b[start] = '{'
	return append(b, '}')
}

// hasOutcome reports whether the record has something that a duplicate may get.
func hasOutcome(rec *semel.Record) bool {
	switch rec.Disposition {
	case semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed:
		return rec.State.Terminal()
	}
	return false
}

// outcomeFrame appends what an outcome reference is a digest of, before and after the
// result.
func outcomeFrame(before []byte, rec *semel.Record) []byte {
	kept := byte(1)
	if rec.Result.Tombstone {
		kept = 0
	}
	before = append(append(before, "semel-outcome-1\n"...), byte(rec.Disposition), kept)
	return binary.AppendUvarint(before, uint64(len(rec.Result.Data)))
}

func outcomeTail(after []byte, rec *semel.Record) []byte {
	if rec.Failure == nil {
		return after
	}
	return appendFrame(appendFrame(after, rec.Failure.Code), rec.Failure.Message)
}

// remembered is the digest of one version of a record.
type remembered struct {
	revision semel.Revision
	sum      [sha256.Size]byte
}

// outcome is OutcomeDigest. Those of large results are remembered for a while, since
// one may be replayed again and again.
func (m *maker) outcome(rec *semel.Record) [sha256.Size]byte {
	large := len(rec.Result.Data) > 4<<10
	slot := &m.log.outcomes[rec.Revision[15]]
	if large {
		if known := slot.Load(); known != nil && known.revision == rec.Revision {
			return known.sum
		}
	}
	m.plain.Reset()
	m.plain.Write(outcomeFrame(m.frame[:0], rec))
	m.plain.Write(rec.Result.Data)
	m.plain.Write(outcomeTail(m.frame[:0], rec))
	m.plain.Sum(m.sum[:0])
	if large {
		slot.Store(&remembered{rec.Revision, m.sum})
	}
	return m.sum
}
