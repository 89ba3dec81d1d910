package evidence

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// facts are what one entry says.
type facts struct {
	kind     Type
	change   store.Change
	decision string
	executed *bool
	reason   string
	state    string
	by       *store.Settled // who decided instead of the holder

	rec         *semel.Record
	attempt     int // set for another attempt than the newest
	fence       int64
	disposition store.Disposition

	call    *semel.Call // the delivery, if it changed nothing
	counted *count      // the deliveries, if there are several
	item    string      // for the opening
	why     string
	content string
	sum     [sha256.Size]byte // the outcome's digest, if there is an outcome
	at      store.Instant
	level   store.Level
}

// Says whether a delivery got the execution.
var notExecuted, executed = new(false), new(true)

// usualSize is enough for most encodings and hash inputs, which then need at most one
// allocation.
const usualSize = 512

// nextID returns an id that no other entry has.
func (l *Log) nextID() string {
	return "ev_" + hex.EncodeToString(binary.BigEndian.AppendUint64(l.node[:len(l.node):len(l.node)], l.ids.Add(1)))
}

func (l *Log) entry(f *facts) store.Entry {
	rec := f.rec
	a := Artifact{
		ID:        l.nextID(),
		Type:      f.kind,
		EmittedAt: f.at.Time(),
		Payload: Payload{
			Attempt: rec.Attempt, Change: f.change, Decision: f.decision, Disposition: rec.Disposition.String(),
			Content: f.content, Durability: f.level, Executed: f.executed, Reason: f.reason, State: f.state,
		},
		Tenant:  l.Tenant(rec.ID.Tenant),
		Version: Version,
	}
	key, number := numbered(rec)
	o := Opening{
		CommandID: rec.Attributes[semel.AttributeCommandID], CorrelationID: rec.Attributes[store.AttributeCorrelationID],
		IdempotencyKey: key, Item: f.item, Operation: rec.ID.Operation,
		Principal: cmp.Or(rec.Principal, rec.ID.Principal), Reason: f.why, RequestID: rec.Attributes[store.AttributeRequestID], Salt: salt(), Tenant: rec.ID.Tenant,
	}
	p, fence := &a.Payload, rec.Fence
	p.Operation = l.operation(rec.ID.Operation)
	subject := l.named(rec, key, number, p)
	if until := keptUntil(rec); until != 0 && (f.change != "" || f.decision == DecisionReplayed) {
		p.KeptUntil, p.Unfinished = until.Time(), rec.State.Terminal() && rec.Unfinished()
	}
	if c := f.counted; c != nil {
		p.Count, p.From, p.Until = c.n, c.from.Time(), c.until.Time()
	}
	if f.by != nil {
		p.By, o.SettledBy, o.Reason = f.by.By, f.by.Who, f.by.Reason
	}
	if f.attempt != 0 {
		p.Attempt, p.Disposition, fence = f.attempt, f.disposition.String(), f.fence
	} else {
		l.outcome(f, p, &o)
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
	opening := canonical(&o)
	sum := Commit(opening)
	a.Commitment = hex.EncodeToString(sum[:])
	leaf := canonical(&a)
	return store.Entry{Leaf: leaf, Opening: opening, Hash: leafHash(leaf), Subject: subject, Also: l.names(f, key)}
}

// numbered returns the caller's key, and the call's number in its sequence, if any.
func numbered(rec *semel.Record) (key string, n uint64) {
	// Other keys can look like a number's, too.
	if key, n := rec.ID.Number(); n != 0 && n == rec.Sequence {
		return key, n
	}
	return rec.ID.Key, rec.Sequence
}

// named notes the names of the record, and returns the entry's index key.
func (l *Log) named(rec *semel.Record, key string, number uint64, p *Payload) (s store.Subject) {
	if rec.ID.Key == "" { // deliveries of several calls
		return s
	}
	s = l.Subject(rec.ID)
	p.Record = recordPrefix + keyedDigest(s).String()
	if number != 0 {
		p.Sequence = strconv.FormatUint(number, 10)
	}
	if key != rec.ID.Key {
		sequence := rec.ID
		sequence.Key = key
		p.SequenceRef = recordPrefix + keyedDigest(l.Subject(sequence)).String()
	}
	return s
}

// keptUntil returns when a record's window ends. While its attempt runs, that is the earliest
// possible time: the window begins when the attempt ends.
func keptUntil(rec *semel.Record) store.Instant {
	switch {
	case rec.ExpiresAt != 0:
		return rec.ExpiresAt
	case rec.StartedAt != 0:
		return rec.StartedAt.Add(rec.Policy.Stays())
	}
	return 0
}

// names returns the entry's further index keys: the caller's key, and the ids of the first
// delivery and of this one.
func (l *Log) names(f *facts, key string) []store.Subject {
	if key == "" {
		return nil
	}
	tenant := f.rec.ID.Tenant
	list := append(make([]store.Subject, 0, 4), l.Name(tenant, key))
	add := func(a store.Attributes) {
		for _, name := range store.IDAttributes {
			if id := a[name]; id != "" {
				if s := l.Name(tenant, id); !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
		}
	}
	if len(f.rec.Attributes) > 0 {
		add(f.rec.Attributes)
	}
	if f.call != nil && len(f.call.Attributes) > 0 {
		add(f.call.Attributes)
	}
	return list
}

func (l *Log) outcome(f *facts, p *Payload, o *Opening) {
	rec := f.rec
	if rec.Failure != nil {
		o.FailureCode = rec.Failure.Code
	}
	if hasOutcome(rec) {
		o.OutcomeSHA256 = hex.EncodeToString(f.sum[:])
		p.OutcomeRef = outcomePrefix + l.keyed(domainOutcome, f.sum[:]).String()
	}
}

// fingerprint returns a fingerprint, if there is one, for a leaf and for its opening.
func (l *Log) fingerprint(fp *semel.Fingerprint) (blinded, clear string) {
	if fp.IsZero() {
		return "", ""
	}
	b, _ := fp.AppendBinary(nil) // its form is fixed: its scheme and its digest
	return l.keyed(domainFingerprint, b).String(), strconv.Itoa(int(b[0])) + ":" + hex.EncodeToString(b[1:])
}

// presented notes how a delivery differs from the record.
func (l *Log) presented(call *semel.Call, rec *semel.Record, p *Payload, o *Opening) {
	if call.Principal != rec.Principal {
		o.PresentedBy = call.Principal
	}
	if id := call.Attributes[semel.AttributeCommandID]; id != o.CommandID {
		o.PresentedCommandID = id
	}
	if id := call.Attributes[store.AttributeRequestID]; id != o.RequestID {
		o.PresentedRequestID = id
	}
	if !call.Presents(rec) {
		p.Presented, o.PresentedFingerprint = l.fingerprint(&call.Fingerprint)
	}
}

func salt() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

// keyedDigest is the first half of a SHA-256 of the key and the data. Its readers lack the
// other half, so they can't extend it to the digest of longer data. HMAC would also prevent
// that, at three times the price.
type keyedDigest [16]byte

// String returns the digest in hexadecimal.
func (d keyedDigest) String() string { return hex.EncodeToString(d[:]) }

func (l *Log) keyed(d domain, data []byte) keyedDigest {
	var stack [usualSize]byte
	sum := sha256.Sum256(append(append(stack[:0], l.domains[d][:]...), data...))
	return keyedDigest(sum[:])
}

// keyedNames returns the keyed digest of length-framed names.
func (l *Log) keyedNames(d domain, names ...string) keyedDigest {
	var stack [usualSize]byte
	b := append(stack[:0], l.domains[d][:]...)
	for _, name := range names {
		b = canon.Frame(b, name)
	}
	sum := sha256.Sum256(b)
	return keyedDigest(sum[:])
}

// domain says what a keyed digest is for.
type domain uint8

const (
	domainTenant domain = iota
	domainFingerprint
	domainOutcome
	domainCommand
	domainIdentity
	domainContent
	domainOperation
	domainCount
)

// domainKeys derives a key for each domain from the secret. With 16 bytes most hash inputs fit
// into a block of SHA-256.
func (k *Keys) domainKeys() (keys [domainCount][16]byte) {
	for d := range keys {
		sum := sha256.Sum256(append(k.secret[:], byte(d)))
		copy(keys[d][:], sum[:])
	}
	return keys
}

// Prefixes of the blinded names of tenants, records and outcomes.
const (
	tenantPrefix    = "tn_"
	recordPrefix    = "rec_"
	outcomePrefix   = "out_"
	operationPrefix = "op_"
)

// Tenant returns the blinded name of a tenant in leaves.
func (l *Log) Tenant(name string) string {
	return tenantPrefix + l.keyed(domainTenant, []byte(name)).String()
}

func (l *Log) operation(name string) string {
	return operationPrefix + l.keyed(domainOperation, []byte(name)).String()
}

// Name returns the index key for one of the names that entries have within a tenant: the
// caller's key, or an id of the first delivery or a later one, see [store.IDAttributes]. Calls
// of several callers or operations may share a name.
func (l *Log) Name(tenant, name string) store.Subject {
	return store.Subject(l.keyedNames(domainCommand, tenant, name))
}

// Subject returns the name under which the store finds all entries about one identity.
func (l *Log) Subject(id semel.ID) store.Subject {
	return store.Subject(l.keyedNames(domainIdentity, id.Tenant, id.Principal, id.Operation, id.Key))
}

// delivered reports whether the entry is about a delivery. Only such entries have the
// fingerprint; later ones about the attempt have the same fence.
func (f *facts) delivered() bool {
	switch f.change {
	case store.ChangeEnded, store.ChangeMoved, store.ChangeForgotten, store.ChangeSettled, store.ChangeReleased, store.ChangeRestored, store.ChangeHeld, store.ChangeEffect, store.ChangeMessage, store.ChangeCompensation, store.ChangeConfirmed, store.ChangePurged:
		return f.decision != ""
	}
	return true
}

// hasOutcome reports whether the record has something for a duplicate to get.
func hasOutcome(rec *semel.Record) bool {
	d := rec.Disposition
	return rec.State.Terminal() && d != semel.DispositionAborted && d != semel.DispositionAbandoned && (!rec.OnlyNamed() || rec.Result.Data != nil)
}
