package datasync

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// maxSwaps bounds how often a change is tried again because another came between. Each
// time that other one has succeeded.
const maxSwaps = 100

// change changes the state that c belongs to, until nobody else has changed it meanwhile.
func (r *Replica) change(ctx context.Context, c Change, merge func(s *State, now store.Instant) (Outcome, error)) (State, Outcome, error) {
	cell, err := r.cell(c.Ref, c.Version)
	if err != nil {
		return State{}, "", err
	}
	for range maxSwaps {
		was, err := cell.Load(ctx)
		if err != nil {
			return State{}, "", err
		}
		old, err := decode(c.Ref, was.Data)
		if err != nil {
			return State{}, "", err
		}
		now, err := r.store.Now(ctx)
		if err != nil {
			return State{}, "", &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
		}
		// A message that was parked is one that may still be needed.
		open := was.Wake != nil && (was.Wake.State == store.MessagePending || was.Wake.State == store.MessageParked)
		s := old
		s.Unsent = s.Unsent && open
		out, err := merge(&s, now)
		if err != nil || s.Sequence == old.Sequence && s.Version == old.Version {
			return s, out, err
		}
		next := store.CellValue{}
		if next.Data, err = encode(&s); err != nil {
			return s, "", err
		}
		if s.Sequence != old.Sequence {
			next.Wake, err = r.message(&s, c.Version, now)
		} else if open {
			still := *was.Wake
			if still.NextAt == 0 {
				still.NextAt = now
			}
			next.Wake = &still
		}
		if err != nil {
			return s, "", err
		}
		// A crash before this write leaves the old state and its message, a crash after it
		// the new ones: the dispatcher of any node finds the message due.
		_, swapped, err := cell.Swap(ctx, was, next)
		if err != nil || swapped {
			return s, out, err
		}
	}
	return State{}, "", &semel.Error{Code: semel.CodeUnknown, Message: "datasync: the entity changes too fast"}
}

// pointer is the payload of a message: which state is to be applied.
type pointer struct {
	Tenant   string `json:"tenant,omitempty"`
	Entity   string `json:"entity"`
	ID       string `json:"id"`
	Version  int64  `json:"version"`
	Sequence int64  `json:"sequence"`
}

// message is the message about a state. Every state has a message of its own.
func (r *Replica) message(s *State, version int64, now store.Instant) (*semel.Message, error) {
	payload, err := json.Marshal(pointer{s.Tenant, s.Entity, s.ID, version, s.Sequence})
	digest := r.id(s.Ref, version).Digest()
	name := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte("semel-datasync-1"), digest[:]...), uint64(s.Sequence)))
	return &semel.Message{
		ID: "msg_" + base64.RawURLEncoding.EncodeToString(name[:]), Name: "state",
		Destination: r.opts.Name, ContentType: "application/json", Payload: payload, NextAt: now,
	}, err
}

// Work applies a state, and sends it to the other side if needed. payload is the payload of a
// message to the replica's destination. It returns nil when both are done, or when a later
// state has replaced this one, which has a message of its own. After an error, call it again.
func (r *Replica) Work(ctx context.Context, payload []byte) error {
	var p pointer
	if err := form.Read(payload, 1, &p); err != nil {
		return fmt.Errorf("datasync: the message is not one of a replica: %w", err)
	}
	s, err := r.Get(ctx, Ref{p.Tenant, p.Entity, p.ID}, p.Version)
	if errors.Is(err, semel.ErrNotFound) {
		return nil // the store was restored from a backup that lacks it
	}
	if err != nil || s.Sequence != p.Sequence {
		return err
	}
	// A crash in here leaves the message due: the same state is applied and sent again.
	if err := r.opts.Apply(ctx, s); err != nil {
		return err
	}
	for _, c := range s.Changes {
		if s.Unsent && c.Origin == r.opts.Origin {
			if err := r.opts.Send(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}
