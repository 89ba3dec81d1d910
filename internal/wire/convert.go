package wire

import (
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// RecordOf converts a record, without the decisions about its deliveries.
func RecordOf(rec *semel.Record) Record {
	key, _ := rec.ID.Number()
	v := Record{
		ID: rec.ID.Encode(), Owner: OwnerOf(&rec.ID), Door: rec.Door, Sequence: rec.Sequence, Key: key, Operation: rec.ID.Operation,
		BoundTo: rec.BoundTo, PayloadHash: rec.Fingerprint, Status: rec.State, Disposition: rec.Disposition,
		Hold:       Hold{rec.Held, rec.HeldReason},
		KeptResult: keptResult(rec.Result), Error: (*Failure)(rec.Failure), Settled: (*Settled)(rec.Settled), Fence: rec.Fence, Attempt: rec.Attempt, Holder: rec.Holder,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, StartedAt: rec.StartedAt, EndedAt: rec.EndedAt,
		LeaseUntil: rec.LeaseUntil, ExpiresAt: rec.ExpiresAt, Attributes: rec.Attributes,
		Attempts: make([]Attempt, 0, len(rec.Earlier)+1), Effects: make([]Effect, 0, len(rec.Effects)),
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		v.Attempts = append(v.Attempts, Attempt{at.Number, at.Fence, at.Holder, at.Principal, at.Disposition, (*Failure)(at.Failure), (*Settled)(at.Settled), at.StartedAt, at.EndedAt})
	}
	v.Attempts = append(v.Attempts, Attempt{rec.Attempt, rec.Fence, rec.Holder, rec.Principal, rec.Disposition, v.Error, v.Settled, rec.StartedAt, rec.EndedAt})
	for i := range rec.Effects {
		v.Effects = append(v.Effects, EffectOf(&rec.Effects[i]))
	}
	if c := rec.Confirmation; c != nil {
		v.Confirmation = &Confirmation{c.Principal, c.Tries, c.ConfirmedAt}
	}
	for i := range rec.Outbox {
		v.Messages = append(v.Messages, OutgoingOf(&rec.Outbox[i]))
	}
	if c := rec.Compensation; c != nil {
		v.Compensation = &Compensation{c.ID(rec.ID.Tenant).Encode(), c.Operation, c.State, c.Reason, c.StartedAt, c.SettledAt, (*Failure)(c.Failure)}
	}
	return v
}

// EffectOf converts an effect.
func EffectOf(ef *store.EffectRecord) Effect {
	return Effect{ef.Name, ef.Key, ef.State, ef.Fence, keptResult(ef.Result), (*Failure)(ef.Failure), (*Settled)(ef.Settled), ef.StartedAt, ef.SettledAt}
}

// OutgoingOf converts a message.
func OutgoingOf(m *semel.Message) Outgoing {
	return Outgoing{
		ID: m.ID, Name: m.Name, Destination: m.Destination, ContentType: m.ContentType, Size: len(m.Payload), Order: m.Order, State: m.State,
		Tries: m.Tries, NextAt: m.NextAt, CreatedAt: m.CreatedAt, SettledAt: m.SettledAt, Error: (*Failure)(m.Failure),
	}
}

// Value returns the record in the core model. An error means that v isn't a valid record.
func (v *Record) Value() (*semel.Record, error) {
	for _, m := range []struct {
		missing bool
		name    string
	}{{v.Operation == "", "operation"}, {v.Key == "", "idempotency_key"}, {v.Status == 0, "status"}} {
		if m.missing {
			return nil, fmt.Errorf("the record has no %s", m.name)
		}
	}
	id := semel.ID{Tenant: v.Tenant, Principal: v.principal(), Operation: v.Operation, Key: v.Key}
	if whole, err := store.DecodeID(v.ID); err == nil {
		id = whole // with the number of the call in its sequence
	}
	rec := &semel.Record{
		ID:    id,
		State: v.Status, Disposition: v.Disposition, Fingerprint: v.PayloadHash, Held: v.Held, HeldReason: v.HeldReason,
		Failure: (*store.Failure)(v.Error), Settled: (*store.Settled)(v.Settled),
		Fence: v.Fence, Attempt: v.Attempt, Holder: v.Holder, Principal: v.Principal, BoundTo: v.BoundTo, Door: v.Door, Sequence: v.Sequence,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, StartedAt: v.StartedAt, EndedAt: v.EndedAt,
		LeaseUntil: v.LeaseUntil, ExpiresAt: v.ExpiresAt, Attributes: v.Attributes,
	}
	var err error
	if rec.Result, err = v.KeptResult.value(); err != nil {
		return nil, err
	}
	for i, at := range v.Attempts {
		if i == len(v.Attempts)-1 {
			rec.Principal = at.Principal
			break
		}
		rec.Earlier = append(rec.Earlier, store.AttemptRecord{
			Number: at.Number, Fence: at.Fence, Holder: at.Holder, Principal: at.Principal, Disposition: at.Disposition,
			Failure: (*store.Failure)(at.Error), Settled: (*store.Settled)(at.Settled), StartedAt: at.StartedAt, EndedAt: at.EndedAt,
		})
	}
	for i := range v.Effects {
		ef, err := v.Effects[i].Value()
		if err != nil {
			return nil, err
		}
		rec.Effects = append(rec.Effects, ef)
	}
	if c := v.Confirmation; c != nil {
		rec.Confirmation = &store.Confirmation{Principal: c.Principal, Tries: c.Tries, ConfirmedAt: c.ConfirmedAt}
	}
	for i := range v.Messages {
		rec.Outbox = append(rec.Outbox, v.Messages[i].value())
	}
	if c := v.Compensation; c != nil {
		id, err := store.DecodeID(c.Record)
		if err != nil {
			return nil, fmt.Errorf("the record of its compensation: %w", err)
		}
		rec.Compensation = &store.Compensation{
			Operation: c.Operation, Principal: id.Principal, Key: id.Key, State: c.State, Reason: c.Reason,
			StartedAt: c.StartedAt, SettledAt: c.SettledAt, Failure: (*store.Failure)(c.Error),
		}
	}
	return rec, nil
}

// Value returns the effect in the core model.
func (v *Effect) Value() (store.EffectRecord, error) {
	res, err := v.KeptResult.value()
	return store.EffectRecord{
		Name: v.Name, Key: v.Key, State: v.State, Fence: v.Fence, Result: res, Failure: (*store.Failure)(v.Error), Settled: (*store.Settled)(v.Settled),
		StartedAt: v.StartedAt, SettledAt: v.SettledAt,
	}, err
}

func (v *Outgoing) value() semel.Message {
	return semel.Message{
		ID: v.ID, Name: v.Name, Destination: v.Destination, ContentType: v.ContentType, Order: v.Order, State: v.State,
		Tries: v.Tries, NextAt: v.NextAt, CreatedAt: v.CreatedAt, SettledAt: v.SettledAt, Failure: (*store.Failure)(v.Error),
	}
}

// KeptOf converts everything that a record has.
func KeptOf(rec *semel.Record) Kept {
	v := Kept{Record: RecordOf(rec), Revision: rec.Revision, Origin: rec.Origin, Policy: rec.Policy, NextAt: rec.NextAt, Payload: rec.Payload, Mark: (*KeptMark)(rec.Mark), RefusedUntil: rec.RefusedUntil}
	if c := rec.Confirmation; c != nil {
		v.Tokens = c.Tokens
	}
	for i := range rec.Outbox {
		v.Payloads = append(v.Payloads, rec.Outbox[i].Payload)
	}
	if c := rec.Compensation; c != nil {
		v.CompensatedBy, v.CompensationShared, v.CompensationNextAt = c.Principal, c.Shared, c.NextAt
	}
	return v
}

// Value is [Record.Value] with everything else.
func (v *Kept) Value() (*semel.Record, error) {
	rec, err := v.Record.Value()
	if err != nil {
		return nil, err
	}
	rec.Revision, rec.Origin, rec.Policy, rec.NextAt, rec.Payload = v.Revision, v.Origin, v.Policy, v.NextAt, v.Payload
	rec.Mark, rec.RefusedUntil = (*store.Mark)(v.Mark), v.RefusedUntil
	if c := rec.Confirmation; c != nil {
		c.Tokens = v.Tokens
	}
	if len(v.Payloads) != len(rec.Outbox) {
		return nil, fmt.Errorf("the record has %d messages and the payloads of %d", len(rec.Outbox), len(v.Payloads))
	}
	for i := range rec.Outbox {
		rec.Outbox[i].Payload = v.Payloads[i]
	}
	if c := rec.Compensation; c != nil {
		c.Principal, c.Shared, c.NextAt = v.CompensatedBy, v.CompensationShared, v.CompensationNextAt
	}
	return rec, nil
}
