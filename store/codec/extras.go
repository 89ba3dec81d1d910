package codec

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel/store"
)

// The flags of the optional members that follow the rest. A record with none of them
// ends without them.
const (
	hasAttributes = 1 << iota
	hasConfirmation
	hasOutbox
	hasCompensation
	hasPolicy
	hasBound
	hasDoor
	hasSequence
	hasPayload
	hasMark
	hasRefused
	knownExtras = 1<<iota - 1
)

// The bits of a policy.
const (
	policyRetry = 1 << iota
	policyLedger
	policyArchive
	policyReconcile
	policyRemember // a duration follows
	knownPolicy    = 1<<iota - 1
)

// The fewest bytes that the elements of lists take; see minEffect.
const (
	minAttribute = 2
	minToken     = 33
	minMessage   = 12
)

// The vocabularies of messages and compensations; see effectStates.
var (
	messageStates      = []store.MessageState{"", store.MessagePending, store.MessageDelivered, store.MessageParked, store.MessageDiscarded}
	compensationStates = []store.CompensationState{"", store.CompensationStarted, store.CompensationDone, store.CompensationFailed}
)

// extrasOf returns the flags of the optional members that a record has.
func extrasOf(r *store.Record) (has uint64) {
	for i, there := range [...]bool{ // in the order of the bits
		r.Attributes != nil, r.Confirmation != nil, r.Outbox != nil, r.Compensation != nil, r.Policy != (store.Policy{}),
		r.BoundTo != "", r.Door != "", r.Sequence != 0, r.Payload != nil, r.Mark != nil, r.RefusedUntil != 0,
	} {
		if there {
			has |= 1 << i
		}
	}
	return has
}

func appendExtras(b []byte, r *store.Record) []byte {
	has := extrasOf(r)
	if has == 0 {
		return b
	}
	b = binary.AppendUvarint(b, has)
	if has&hasAttributes != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Attributes)))
		for _, name := range slices.Sorted(maps.Keys(r.Attributes)) { // equal records have equal bytes
			b = appendText(appendText(b, name), r.Attributes[name])
		}
	}
	if has&hasConfirmation != 0 {
		b = appendConfirmation(b, r.Confirmation)
	}
	if has&hasOutbox != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Outbox)))
		for i := range r.Outbox {
			b = appendMessage(b, &r.Outbox[i])
		}
	}
	if has&hasCompensation != 0 {
		b = appendCompensation(b, r.Compensation)
	}
	if has&hasPolicy != 0 {
		b = appendPolicy(b, &r.Policy)
	}
	if has&hasBound != 0 {
		b = appendText(b, r.BoundTo)
	}
	if has&hasDoor != 0 {
		b = appendText(b, r.Door)
	}
	if has&hasSequence != 0 {
		b = binary.AppendUvarint(b, r.Sequence)
	}
	if has&hasPayload != 0 {
		b = appendBytes(b, r.Payload)
	}
	if m := r.Mark; m != nil {
		b = binary.AppendUvarint(binary.AppendUvarint(b, m.Begun), m.Newest)
	}
	if has&hasRefused != 0 {
		b = appendTime(b, r.RefusedUntil)
	}
	return b
}

func appendConfirmation(b []byte, c *store.Confirmation) []byte {
	b = appendCount(b, len(c.Tokens), c.Tokens == nil)
	for i := range c.Tokens {
		b = append(b, c.Tokens[i].Digest[:]...)
		b = appendTime(b, c.Tokens[i].ExpiresAt)
	}
	b = binary.AppendVarint(b, int64(c.Tries))
	return appendTime(appendText(b, c.Principal), c.ConfirmedAt)
}

func (r *reader) confirmation() *store.Confirmation {
	c := new(store.Confirmation)
	if n, isNil := r.count(minToken); !isNil {
		c.Tokens = make([]store.ConfirmationToken, n)
		for i := range c.Tokens {
			copy(c.Tokens[i].Digest[:], r.take(len(store.Digest{})))
			c.Tokens[i].ExpiresAt = r.time()
		}
	}
	c.Tries = int(r.varint())
	c.Principal = r.text()
	c.ConfirmedAt = r.time()
	return c
}

// appendCompensation writes Shared by the flag for a fingerprint, which a compensation
// doesn't have.
func appendCompensation(b []byte, c *store.Compensation) []byte {
	b = append(b, flagsOf(c.Shared, c.Failure, store.Result{}, nil))
	b = appendText(b, c.Operation)
	b = appendText(b, c.Principal)
	b = appendText(b, c.Key)
	b = appendWord(b, compensationStates, c.State)
	b = appendText(b, c.Reason)
	b = appendTime(b, c.StartedAt)
	b = appendTime(b, c.SettledAt)
	b = appendTime(b, c.NextAt)
	return appendFailure(b, c.Failure)
}

func (r *reader) compensation() *store.Compensation {
	flags := r.flags()
	c := &store.Compensation{Operation: r.text(), Principal: r.text(), Key: r.text()}
	c.Shared = flags&hasFingerprint != 0
	c.State = word(r, compensationStates)
	c.Reason = r.text()
	c.StartedAt = r.time()
	c.SettledAt = r.time()
	c.NextAt = r.time()
	c.Failure = r.failure(flags)
	return c
}

func appendPolicy(b []byte, p *store.Policy) []byte {
	var flags byte
	for i, set := range [...]bool{p.Retry, p.Ledger, p.Archive, p.Reconcile, p.Remember != 0} { // in the order of the bits
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, int64(p.Lease))
	b = binary.AppendVarint(b, int64(p.Window))
	b = binary.AppendVarint(b, int64(p.MaxResult))
	if p.Remember != 0 {
		b = binary.AppendVarint(b, int64(p.Remember))
	}
	return b
}

func (r *reader) policy() (p store.Policy) {
	flags := r.known(knownPolicy)
	p.Retry, p.Ledger = flags&policyRetry != 0, flags&policyLedger != 0
	p.Archive, p.Reconcile = flags&policyArchive != 0, flags&policyReconcile != 0
	p.Lease, p.Window, p.MaxResult = time.Duration(r.varint()), time.Duration(r.varint()), int(r.varint())
	if flags&policyRemember != 0 {
		p.Remember = time.Duration(r.varint())
		r.bad = r.bad || p.Remember == 0
	}
	return p
}

func appendMessage(b []byte, m *store.Message) []byte {
	b = append(b, flagsOf(false, m.Failure, store.Result{}, nil))
	b = appendText(b, m.ID)
	b = appendText(b, m.Name)
	b = appendText(b, m.Destination)
	b = appendText(b, m.ContentType)
	b = appendBytes(b, m.Payload)
	b = appendText(b, m.Order)
	b = appendWord(b, messageStates, m.State)
	b = binary.AppendVarint(b, int64(m.Tries))
	b = appendTime(b, m.NextAt)
	b = appendTime(b, m.CreatedAt)
	b = appendTime(b, m.SettledAt)
	return appendFailure(b, m.Failure)
}

func (r *reader) extras(rec *store.Record) {
	has := r.uvarint()
	switch {
	case has == 0:
		r.bad = true
	case has&^knownExtras != 0:
		r.unknown()
	}
	if has&hasAttributes != 0 {
		n := r.elements(minAttribute)
		rec.Attributes = make(store.Attributes, n)
		for range n {
			name := r.text()
			rec.Attributes[name] = r.text()
		}
		r.bad = r.bad || len(rec.Attributes) != n
	}
	if has&hasConfirmation != 0 {
		rec.Confirmation = r.confirmation()
	}
	if has&hasOutbox != 0 {
		rec.Outbox = make([]store.Message, r.elements(minMessage))
		for i := range rec.Outbox {
			r.message(&rec.Outbox[i])
		}
	}
	if has&hasCompensation != 0 {
		rec.Compensation = r.compensation()
	}
	if has&hasPolicy != 0 {
		rec.Policy = r.policy()
	}
	if has&hasBound != 0 {
		rec.BoundTo = r.text()
		r.bad = r.bad || rec.BoundTo == "" // without it there would be no flag
	}
	if has&hasDoor != 0 {
		rec.Door = r.text()
		r.bad = r.bad || rec.Door == ""
	}
	if has&hasSequence != 0 {
		rec.Sequence = r.uvarint()
		r.bad = r.bad || rec.Sequence == 0
	}
	if has&hasPayload != 0 {
		rec.Payload = r.bytes()
		r.bad = r.bad || rec.Payload == nil
	}
	if has&hasMark != 0 {
		rec.Mark = &store.Mark{Begun: r.uvarint(), Newest: r.uvarint()}
	}
	if has&hasRefused != 0 {
		rec.RefusedUntil = r.time()
		r.bad = r.bad || rec.RefusedUntil == 0
	}
}

func (r *reader) message(m *store.Message) {
	flags := r.flags()
	m.ID = r.text()
	m.Name = r.text()
	m.Destination = r.text()
	m.ContentType = r.text()
	m.Payload = r.bytes()
	m.Order = r.text()
	m.State = word(r, messageStates)
	m.Tries = int(r.varint())
	m.NextAt = r.time()
	m.CreatedAt = r.time()
	m.SettledAt = r.time()
	m.Failure = r.failure(flags)
}

// elements reads a number of elements of at least size bytes each.
func (r *reader) elements(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}
