package evidence

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

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

// maker makes entries. It is used by one goroutine at a time, and is big only to
// make none of what it needs again.
type maker struct {
	log     *Log
	facts   facts
	leaf    leaf
	opening opening
	text    []byte // that is hashed
	dates   dates
	hashed  [512]byte
	salts   [512]byte
	used    int // of the salts
	named   string
	tenant  keyedDigest // of the tenant that was named last
	count   uint64      // of the id of the next entry
	entries []semel.Entry
	// slab is what entries are packed in, one after the other. Entries go soon, as
	// they came.
	slab  []byte
	space int // that an entry takes, about
}

const (
	slabBytes   = 8 << 10
	slabEntries = 32
	// ids is how many a maker takes at a time.
	ids = 1 << 10
)

func newMaker(l *Log) *maker {
	m := &maker{log: l, space: 320}
	m.used = len(m.salts)
	m.tenant = keyed(m.in(domainTenant))
	return m
}

// release gives m back. It remembers no record.
func (m *maker) release() {
	m.facts, m.leaf, m.opening = facts{}, leaf{}, opening{}
	m.log.makers.Put(m)
}

// keyed is a keyed digest of data that begins with the key of its domain: the first half
// of its SHA-256. Half of it is withheld, so nobody can continue it to that of longer data,
// which is what HMAC would be for, at three times the price.
func keyed(data []byte) keyedDigest {
	sum := sha256.Sum256(data)
	return keyedDigest(sum[:])
}

// in begins what is hashed with the key of a domain.
func (m *maker) in(d domain) []byte { return append(m.hashed[:0], m.log.domains[d][:]...) }

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

// subjectOf is what the entries of a command are found by, or those of an identity
// where there is none.
func (m *maker) subjectOf(id *semel.ID, command string) semel.Subject {
	if command != "" {
		b := appendFrame(m.in(domainCommand), id.Tenant)
		return semel.Subject(keyed(appendFrame(b, command)))
	}
	b := appendFrame(m.in(domainIdentity), id.Tenant)
	b = appendFrame(b, id.Principal)
	b = appendFrame(b, id.Operation)
	return semel.Subject(keyed(appendFrame(b, id.Key)))
}

// blind is the blinded name of a tenant.
func (m *maker) blind(tenant string) keyedDigest {
	if m.named != tenant {
		m.tenant = keyed(append(m.in(domainTenant), tenant...))
		m.named = tenant
	}
	return m.tenant
}

// id numbers the next entry, as no other entry of this node.
func (m *maker) id() uint64 {
	if m.count%ids == 0 {
		m.count = m.log.ids.Add(ids)
	}
	m.count++
	return m.count - 1
}

// none is an empty list for the entries of one change, most of which have one.
func (m *maker) none() []semel.Entry {
	if len(m.entries) == cap(m.entries) {
		m.entries = make([]semel.Entry, 0, slabEntries)
	}
	n := len(m.entries)
	m.entries = m.entries[:n+1]
	return m.entries[n : n : n+1]
}

// salt fills a salt with random bytes.
func (m *maker) salt(to *[16]byte) {
	if m.used+len(to) > len(m.salts) {
		_, _ = rand.Read(m.salts[:]) // which never fails, it ends the program
		m.used = 0
	}
	m.used += copy(to[:], m.salts[m.used:])
}

// fingerprint is the keyed digest of a fingerprint.
func (m *maker) fingerprint(fp *semel.Fingerprint) keyedDigest {
	b, _ := fp.AppendBinary(m.in(domainFingerprint)) // which has a fixed form
	return keyed(b)
}

// entry makes an entry.
func (m *maker) entry(f *facts) semel.Entry {
	rec := f.rec
	l, o := &m.leaf, &m.opening
	*l = leaf{
		node: m.log.node, tenant: m.blind(rec.ID.Tenant), count: m.id(), at: f.at,
		kind: string(f.kind), change: string(f.change), decision: f.decision, durability: string(f.level), reason: f.reason, state: f.state, executed: f.executed,
	}
	disposition := rec.Disposition
	if l.attempt, l.fence = int64(rec.Attempt), rec.Fence; f.attempt != 0 {
		l.attempt, l.fence, disposition = int64(f.attempt), f.fence, f.disposition
	}
	l.disposition = disposition.String()
	*o = opening{
		operation: rec.ID.Operation, tenant: rec.ID.Tenant, principal: cmp.Or(rec.Principal, rec.ID.Principal), key: rec.ID.Key,
		commandID: rec.Attributes[semel.AttributeCommandID], correlationID: rec.Attributes[attributeCorrelationID],
		item: f.item, reason: f.why,
	}
	if rec.Failure != nil && f.attempt == 0 {
		o.failureCode = rec.Failure.Code
	}
	if f.delivered() && !rec.Fingerprint.IsZero() {
		l.has |= hasFingerprint
		l.fingerprint = m.fingerprint(&rec.Fingerprint)
		o.set(&o.fingerprint, opensFingerprint, &rec.Fingerprint)
	}
	if hasOutcome(rec) && f.attempt == 0 {
		l.has |= hasOutcomeRef
		o.has |= opensOutcome
		m.outcome(rec, &o.outcome)
		l.outcome = keyed(append(m.in(domainOutcome), o.outcome[:]...))
	}
	if f.call != nil {
		m.presented(f.call, rec)
	}
	m.salt(&o.salt)
	m.text = o.appendJSON(append(m.text[:0], commitPrefix...))
	l.commitment = sha256.Sum256(m.text)
	m.text = l.appendJSON(append(m.text[:0], leafMark), &m.dates)
	en := semel.Entry{Hash: sha256.Sum256(m.text), Subject: m.subjectOf(&rec.ID, o.commandID)}
	b := l.pack(m.room())
	end := len(b)
	b = o.pack(b)
	m.use(b)
	en.Leaf, en.Opening = b[:end:end], b[end:len(b):len(b)]
	return en
}

// presented notes what a delivery came with that is not the record's.
func (m *maker) presented(call *semel.Call, rec *semel.Record) {
	l, o := &m.leaf, &m.opening
	if call.Principal != rec.Principal {
		o.presentedBy = call.Principal
	}
	if id := call.Attributes[semel.AttributeCommandID]; id != o.commandID {
		o.presentedCommandID = id
	}
	if call.Fingerprint != rec.Fingerprint && !call.Fingerprint.IsZero() {
		l.has |= hasPresented
		l.presented = m.fingerprint(&call.Fingerprint)
		o.set(&o.presented, opensPresented, &call.Fingerprint)
	}
}

// room is where the next entry is packed: most likely there is enough of it.
func (m *maker) room() []byte {
	if cap(m.slab)-len(m.slab) < m.space {
		m.slab = make([]byte, 0, slabBytes)
	}
	return m.slab[len(m.slab):]
}

// use takes note of what was packed in the room.
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

// largeResult is from how many bytes on a result is hashed where it is, and its
// digest remembered for a while, since it may be replayed again and again.
const largeResult = 4 << 10

// outcome sets sum to OutcomeDigest.
func (m *maker) outcome(rec *semel.Record, sum *[sha256.Size]byte) {
	if len(rec.Result.Data) < largeResult {
		m.text = append(outcomeFrame(m.text[:0], rec), rec.Result.Data...)
		*sum = sha256.Sum256(outcomeTail(m.text, rec))
		return
	}
	slot := &m.log.outcomes[rec.Revision[15]]
	known := slot.Load()
	if known == nil || known.revision != rec.Revision {
		known = &remembered{rec.Revision, OutcomeDigest(rec)}
		slot.Store(known)
	}
	*sum = known.sum
}
