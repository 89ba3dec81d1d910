package evidence

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// Names of the attributes that openings have.
const attributeCorrelationID = "correlation_id"

// facts is what one entry says.
type facts struct {
	kind     Type
	change   store.Change
	decision string
	executed *bool
	reason   string
	state    string

	rec         *semel.Record
	attempt     int // those of another attempt than the newest
	fence       int64
	disposition store.Disposition

	call  *semel.Call // the delivery, where it changed nothing
	item  string      // for the opening
	why   string
	at    store.Instant
	level store.Level
}

// Whether a delivery was given the execution.
var notExecuted, executed = new(false), new(true)

// usualSize has room for most leaves and openings, which then take one piece of memory.
const usualSize = 512

// nextID is one that no other entry has.
func (l *Log) nextID() string {
	return "ev_" + hex.EncodeToString(binary.BigEndian.AppendUint64(l.node[:len(l.node):len(l.node)], l.ids.Add(1)))
}

// entry makes an entry.
func (l *Log) entry(f *facts) store.Entry {
	rec := f.rec
	a := Artifact{
		ID:        l.nextID(),
		Type:      f.kind,
		EmittedAt: f.at.Time(),
		Payload: Payload{
			Attempt: rec.Attempt, Change: f.change, Decision: f.decision, Disposition: rec.Disposition.String(),
			Durability: f.level, Executed: f.executed, Reason: f.reason, State: f.state,
		},
		Tenant:  l.Tenant(rec.ID.Tenant),
		Version: 1,
	}
	o := Opening{
		CommandID: rec.Attributes[semel.AttributeCommandID], CorrelationID: rec.Attributes[attributeCorrelationID],
		IdempotencyKey: rec.ID.Key, Item: f.item, Operation: rec.ID.Operation,
		Principal: cmp.Or(rec.Principal, rec.ID.Principal), Reason: f.why, Salt: salt(), Tenant: rec.ID.Tenant,
	}
	p, fence := &a.Payload, rec.Fence
	if f.attempt != 0 {
		p.Attempt, p.Disposition, fence = f.attempt, f.disposition.String(), f.fence
	} else {
		l.outcome(rec, p, &o)
	}
	if fence != 0 {
		p.Fence = strconv.FormatInt(fence, 10)
	}
	if f.delivered() {
		p.Fingerprint, o.Fingerprint = l.fingerprint(&rec.Fingerprint)
	}
	if f.call != nil {
		l.presented(f.call, rec, p, &o)
	}
	opening := o.appendJSON(make([]byte, 0, usualSize))
	sum := Commit(opening)
	a.Commitment = hex.EncodeToString(sum[:])
	leaf := a.appendJSON(make([]byte, 0, usualSize))
	return store.Entry{Leaf: leaf, Opening: opening, Hash: leafHash(leaf), Subject: l.Subject(rec.ID, o.CommandID)}
}

// outcome notes what a record's newest attempt has come to.
func (l *Log) outcome(rec *semel.Record, p *Payload, o *Opening) {
	if rec.Failure != nil {
		o.FailureCode = rec.Failure.Code
	}
	if hasOutcome(rec) {
		sum := OutcomeDigest(rec)
		o.OutcomeSHA256 = hex.EncodeToString(sum[:])
		p.OutcomeRef = "out_" + l.keyed(domainOutcome, sum[:]).String()
	}
}

// fingerprint is a fingerprint for a leaf and for its opening, if there is one.
func (l *Log) fingerprint(fp *semel.Fingerprint) (blinded, clear string) {
	if fp.IsZero() {
		return "", ""
	}
	b, _ := fp.AppendBinary(nil) // which has a fixed form: its scheme and its digest
	return l.keyed(domainFingerprint, b).String(), strconv.Itoa(int(b[0])) + ":" + hex.EncodeToString(b[1:])
}

// presented notes what a delivery came with that is not the record's.
func (l *Log) presented(call *semel.Call, rec *semel.Record, p *Payload, o *Opening) {
	if call.Principal != rec.Principal {
		o.PresentedBy = call.Principal
	}
	if id := call.Attributes[semel.AttributeCommandID]; id != o.CommandID {
		o.PresentedCommandID = id
	}
	if call.Fingerprint != rec.Fingerprint {
		p.Presented, o.PresentedFingerprint = l.fingerprint(&call.Fingerprint)
	}
}

func salt() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // which never fails, it ends the program
	return hex.EncodeToString(b[:])
}

// keyedDigest is half a SHA-256 with a key. Half of it is withheld, so nobody can continue
// it to that of longer data, which is what HMAC would be for, at three times the price.
type keyedDigest [16]byte

// String is the digest in hexadecimal.
func (d keyedDigest) String() string { return hex.EncodeToString(d[:]) }

func (l *Log) keyed(d domain, data []byte) keyedDigest {
	sum := sha256.Sum256(append(l.domains[d][:len(l.domains[d]):len(l.domains[d])], data...))
	return keyedDigest(sum[:])
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

// tenantPrefix begins the blinded names of tenants.
const tenantPrefix = "tn_"

// Tenant is the blinded name under which leaves know a tenant.
func (l *Log) Tenant(name string) string {
	return tenantPrefix + l.keyed(domainTenant, []byte(name)).String()
}

// Subject is what the entries of a call are found by in the store: its command id
// where it has one, or else its identity.
func (l *Log) Subject(id semel.ID, commandID string) store.Subject {
	b := canon.Frame(nil, id.Tenant)
	if commandID != "" {
		return store.Subject(l.keyed(domainCommand, canon.Frame(b, commandID)))
	}
	b = canon.Frame(canon.Frame(b, id.Principal), id.Operation)
	return store.Subject(l.keyed(domainIdentity, canon.Frame(b, id.Key)))
}

// delivered reports whether the entry is about a delivery. Only those say what was
// delivered: it is the same for all that becomes of it, which has the same fence.
func (f *facts) delivered() bool {
	switch f.change {
	case store.ChangeEnded, store.ChangeHeld, store.ChangeEffect, store.ChangeMessage, store.ChangeCompensation, store.ChangePurged:
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
