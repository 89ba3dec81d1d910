package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// record is a record as the API shows it. Members that are not here are ignored:
// a newer service may show more.
type record struct {
	Tenant      string            `json:"tenant"`
	Principal   string            `json:"principal"`
	BoundTo     string            `json:"bound_to"`
	Door        string            `json:"door"`
	Key         string            `json:"idempotency_key"`
	Operation   string            `json:"operation"`
	PayloadHash semel.Fingerprint `json:"payload_hash"`
	Status      semel.State       `json:"status"`
	Disposition semel.Disposition `json:"disposition"`
	Held        string            `json:"held"`
	result
	Error      *semel.Failure `json:"error"`
	Fence      int64          `json:"fence"`
	Attempt    int            `json:"attempt"`
	Holder     string         `json:"holder"`
	CreatedAt  semel.Instant  `json:"created_at"`
	UpdatedAt  semel.Instant  `json:"updated_at"`
	StartedAt  semel.Instant  `json:"started_at"`
	EndedAt    semel.Instant  `json:"ended_at"`
	LeaseUntil semel.Instant  `json:"lease_until"`
	ExpiresAt  semel.Instant  `json:"expires_at"`
	Attempts   []attempt      `json:"attempts"`
	Effects    []effect       `json:"effects"`

	Attributes   semel.Attributes `json:"attributes"`
	Confirmation *struct {
		Principal   string        `json:"principal"`
		Tries       int           `json:"tries"`
		ConfirmedAt semel.Instant `json:"confirmed_at"`
	} `json:"confirmation"`
	Messages     []message     `json:"messages"`
	Compensation *compensation `json:"compensation"`
}

// message is a message without its payload, which the service does not show.
type message struct {
	ID          string             `json:"id"`
	Name        string             `json:"name"`
	Destination string             `json:"destination"`
	ContentType string             `json:"content_type"`
	Order       string             `json:"order"`
	State       semel.MessageState `json:"state"`
	Tries       int                `json:"tries"`
	NextAt      semel.Instant      `json:"next_at"`
	CreatedAt   semel.Instant      `json:"created_at"`
	SettledAt   semel.Instant      `json:"settled_at"`
	Error       *semel.Failure     `json:"error"`
}

type compensation struct {
	Record    string                  `json:"record"`
	State     semel.CompensationState `json:"state"`
	Reason    string                  `json:"reason"`
	StartedAt semel.Instant           `json:"started_at"`
	SettledAt semel.Instant           `json:"settled_at"`
	Error     *semel.Failure          `json:"error"`
}

// result is a result in either of its forms.
type result struct {
	Result json.RawMessage `json:"result,omitempty"`
	Bytes  *[]byte         `json:"result_base64,omitempty"`
	Kept   *bool           `json:"result_kept,omitempty"`
}

type attempt struct {
	Number      int               `json:"number"`
	Fence       int64             `json:"fence"`
	Holder      string            `json:"holder"`
	Principal   string            `json:"principal"`
	Disposition semel.Disposition `json:"disposition"`
	Error       *semel.Failure    `json:"error"`
	StartedAt   semel.Instant     `json:"started_at"`
	EndedAt     semel.Instant     `json:"ended_at"`
}

type effect struct {
	Name  string            `json:"name"`
	Key   string            `json:"key"`
	State semel.EffectState `json:"state"`
	Fence int64             `json:"fence"`
	result
	Error     *semel.Failure `json:"error"`
	StartedAt semel.Instant  `json:"started_at"`
	SettledAt semel.Instant  `json:"settled_at"`
}

// begun is the answer to a beginning.
type begun struct {
	Decision  semel.Decision `json:"decision"`
	Execution string         `json:"execution"`
	LeaseMS   int64          `json:"lease_ms"`
	Record    record         `json:"record"`
}

// lease is the answer to a renewal.
type lease struct {
	LeaseMS int64 `json:"lease_ms"`
}

// problem is a refusal (RFC 9457).
type problem struct {
	Title      string           `json:"title"`
	Detail     string           `json:"detail"`
	Code       semel.Code       `json:"code"`
	RetryAfter int64            `json:"retry_after"`
	Record     string           `json:"record"`
	Challenge  *semel.Challenge `json:"challenge"`
}

// beginning is what a call is begun with.
type beginning struct {
	Operation   string            `json:"operation,omitempty"` // in a batch only
	Key         string            `json:"key"`
	PayloadHash semel.Fingerprint `json:"payload_hash,omitzero"`
	FirstSent   time.Time         `json:"first_sent,omitzero"`
	Attributes  semel.Attributes  `json:"attributes,omitempty"`
	Confirm     string            `json:"confirm,omitempty"`
	StepUp      string            `json:"step_up,omitempty"`
}

// outcome is what an execution, or an effect, ends with.
type outcome struct {
	Execution string            `json:"execution,omitempty"` // in a batch only
	Name      string            `json:"name,omitempty"`      // of an effect
	State     semel.EffectState `json:"state,omitempty"`     // of an effect
	Bytes     *[]byte           `json:"result_base64,omitempty"`
	Error     *failure          `json:"error,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Messages  []sending         `json:"messages,omitempty"`
}

// sending is a message that a completed execution sends.
type sending struct {
	Name        string  `json:"name"`
	Destination string  `json:"destination"`
	ContentType string  `json:"content_type,omitempty"`
	Payload     *[]byte `json:"payload_base64,omitempty"`
	Order       string  `json:"order,omitempty"`
}

func sentMessages(messages []semel.Message) []sending {
	var list []sending
	for i := range messages {
		m := &messages[i]
		s := sending{Name: m.Name, Destination: m.Destination, ContentType: m.ContentType, Order: m.Order}
		if m.Payload != nil {
			s.Payload = &m.Payload
		}
		list = append(list, s)
	}
	return list
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// maxText bounds the words that the service keeps of a failure, in bytes.
const maxText = 1 << 10

func sentFailure(f *semel.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{cut(f.Code), cut(f.Message)}
}

// cut shortens s as the service would, which refuses longer texts.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText-3], "\uFFFD")
}

// sentResult is always in base64: no encoder on the way can change a byte of it.
func sentResult(res semel.Result) *[]byte {
	if res.Data == nil {
		return nil
	}
	return &res.Data
}

func (r *result) value() semel.Result {
	res := semel.Result{Tombstone: r.Kept != nil && !*r.Kept}
	switch {
	case r.Bytes != nil:
		res.Data = *r.Bytes
	case r.Result != nil:
		res.Data = r.Result
	}
	return res
}

// value is the record as the model has it.
func (r *record) value() (*semel.Record, error) {
	if r.Operation == "" || r.Key == "" || r.Status == 0 {
		return nil, fmt.Errorf("the record has no %s", missing(r))
	}
	rec := &semel.Record{
		ID:          semel.ID{Tenant: r.Tenant, Principal: r.Principal, Operation: r.Operation, Key: r.Key},
		State:       r.Status,
		Disposition: r.Disposition, Fingerprint: r.PayloadHash, Held: r.Held, Result: r.result.value(), Failure: r.Error,
		Fence: r.Fence, Attempt: r.Attempt, Holder: r.Holder, Principal: r.Principal, BoundTo: r.BoundTo, Door: r.Door,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		LeaseUntil: r.LeaseUntil, ExpiresAt: r.ExpiresAt,
	}
	for _, at := range r.Attempts {
		if at.Number == r.Attempt {
			rec.Principal = at.Principal
			continue
		}
		rec.Earlier = append(rec.Earlier, semel.AttemptRecord{
			Number: at.Number, Fence: at.Fence, Holder: at.Holder, Principal: at.Principal, Disposition: at.Disposition,
			Failure: at.Error, StartedAt: at.StartedAt, EndedAt: at.EndedAt,
		})
	}
	for i := range r.Effects {
		rec.Effects = append(rec.Effects, r.Effects[i].value())
	}
	return rec, r.later(rec)
}

// later adds what most records don't have.
func (r *record) later(rec *semel.Record) error {
	rec.Attributes = r.Attributes
	if c := r.Confirmation; c != nil {
		rec.Confirmation = &semel.Confirmation{Principal: c.Principal, Tries: c.Tries, ConfirmedAt: c.ConfirmedAt}
	}
	for _, m := range r.Messages {
		rec.Outbox = append(rec.Outbox, semel.Message{
			ID: m.ID, Name: m.Name, Destination: m.Destination, ContentType: m.ContentType, Order: m.Order, State: m.State,
			Tries: m.Tries, NextAt: m.NextAt, CreatedAt: m.CreatedAt, SettledAt: m.SettledAt, Failure: m.Error,
		})
	}
	if c := r.Compensation; c != nil {
		id, err := semel.DecodeID(c.Record)
		if err != nil {
			return fmt.Errorf("the record of its compensation: %w", err)
		}
		rec.Compensation = &semel.Compensation{
			Operation: id.Operation, Principal: id.Principal, Key: id.Key, State: c.State, Reason: c.Reason,
			StartedAt: c.StartedAt, SettledAt: c.SettledAt, Failure: c.Error,
		}
	}
	return nil
}

func missing(r *record) string {
	switch {
	case r.Operation == "":
		return "operation"
	case r.Key == "":
		return "idempotency_key"
	}
	return "status"
}

func (e *effect) value() semel.EffectRecord {
	return semel.EffectRecord{
		Name: e.Name, Key: e.Key, State: e.State, Fence: e.Fence, Result: e.result.value(), Failure: e.Error,
		StartedAt: e.StartedAt, SettledAt: e.SettledAt,
	}
}
