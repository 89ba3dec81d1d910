package ids

import (
	"encoding/json"
	"log/slog"
	"time"
)

// MaxEnvelope is the longest envelope that is read, in bytes.
const MaxEnvelope = 256 << 10

// Bounds of an envelope's members.
const (
	maxID      = 256  // bytes of an id, an entity, an action or a kind
	maxKey     = 512  // bytes of a caller's idempotency key
	maxSecret  = 4096 // bytes of a confirmation token or a further proof
	maxTargets = 1000 // items of a target
	maxTrace   = 8    // members of a trace
	maxTraced  = 1024 // bytes of a value of a trace
)

// Command is a command envelope: the content of one delivery. The package comment says which
// members go into the key; the others are about this delivery and may differ in the next.
type Command struct {
	// CommandID names the command for people and other systems. If it is empty, the gateway
	// makes one. The record keeps the first delivery's.
	CommandID string `json:"command_id,omitempty"`
	// TenantID isolates callers from each other. Required; part of the key (IDS-XV.1).
	TenantID string `json:"tenant_id"`
	// ActorID is the sender of the command. Part of the key, unless EffectiveActorID is.
	ActorID string `json:"actor_id,omitempty"`
	// EffectiveActorID is the actor for whom somebody else sends the command, such as a
	// system that retries (IDS-VII.6). One of the two is required.
	EffectiveActorID string `json:"effective_actor_id,omitempty"`
	// Intent says what to do, and to what. Part of the key.
	Intent Intent `json:"intent"`
	// Args is a JSON object, in its canonical form; nil is the same as {}. Part of the key
	// after normalisation.
	Args json.RawMessage `json:"args,omitempty"`
	// CommandKind is the class of mutation. Part of the key if it is not empty or the registry
	// declares one.
	CommandKind string `json:"command_kind,omitempty"`
	// CorrelationID ties the command to a larger task. Every answer has it.
	CorrelationID string `json:"correlation_id,omitempty"`
	// Trace says how this delivery arrived.
	Trace Trace `json:"trace,omitempty"`
	// SentAt is when the actor sent the command, the same in all deliveries. It decides, or
	// else ReceivedAt does, whether a delivery is late; see [Entry].Late.
	SentAt time.Time `json:"sent_at,omitzero"`
	// ReceivedAt is when this delivery arrived.
	ReceivedAt time.Time `json:"received_at,omitzero"`
	// IdempotencyKey is the caller's key. Unless the registry lets callers choose the key, it
	// must equal the key derived from the envelope.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// ConfirmationToken confirms the command (IDS-X.1), and StepUp is the further
	// proof that its confirmation may require. Both are secrets.
	ConfirmationToken string `json:"confirmation_token,omitempty"`
	StepUp            string `json:"step_up,omitempty"`
}

// Intent is the purpose of a command.
type Intent struct {
	// Entity and Action name the kind of command, such as "order" and "cancel".
	Entity string `json:"entity"`
	Action string `json:"action"`
	// Target is the object of the command. The zero Target means absent.
	Target Target `json:"target,omitzero"`
}

// Trace says how a delivery arrived: ids of messages, of phones, of spans. It never goes into a
// key. Numbers and booleans in the envelope become text.
type Trace map[string]string

// Members of a [Trace] with a fixed meaning.
const (
	TraceMessageID     = "message_id"      // id of the message, such as a wamid
	TracePhoneNumberID = "phone_number_id" // id of the phone number it came to
)

// Target is the object of a command: absent (the zero Target), null, one stable identifier, or
// several in an order that counts. These four are never equal, and neither are "a" and ["a"].
type Target struct {
	form targetForm
	ids  []string
}

type targetForm uint8

const (
	targetAbsent targetForm = iota
	targetNull
	targetOne
	targetMany
)

// NullTarget returns the target null.
func NullTarget() Target { return Target{form: targetNull} }

// TargetOf returns the target with one identifier.
func TargetOf(id string) Target { return Target{form: targetOne, ids: []string{id}} }

// TargetsOf returns the target with several identifiers, in this order.
func TargetsOf(ids ...string) Target { return Target{targetMany, append([]string{}, ids...)} } // not nil

// IsZero reports whether the target is absent.
func (t Target) IsZero() bool { return t.form == targetAbsent }

// IDs returns the identifiers. Don't change them.
func (t Target) IDs() []string { return t.ids }

// MarshalJSON writes null, a string or an array of strings. An absent target that isn't
// omitted is written as null.
func (t Target) MarshalJSON() ([]byte, error) {
	switch t.form {
	case targetOne:
		return json.Marshal(t.ids[0])
	case targetMany:
		return json.Marshal(t.ids)
	}
	return []byte("null"), nil
}

// ParseCommand reads an envelope. It is strict: duplicate names, invalid UTF-8, unknown members
// and members of another type are refused, all at once, each as an [Error] with its path.
func ParseCommand(text []byte) (Command, error) {
	r := &envelopeReader{}
	c := r.command(text)
	if err := r.err(); err != nil {
		return Command{}, err
	}
	return c, nil
}

// UnmarshalJSON is [ParseCommand].
func (c *Command) UnmarshalJSON(text []byte) (err error) {
	*c, err = ParseCommand(text)
	return err
}

// Name returns the entity and the action, such as "order.cancel". It is also the name of the
// operation.
func (i Intent) Name() string { return i.Entity + "." + i.Action }

// LogValue identifies the command, without its arguments and secrets.
func (c Command) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("command_id", c.CommandID), slog.String("tenant_id", c.TenantID),
		slog.String("intent", c.Intent.Name()), slog.String("correlation_id", c.CorrelationID),
	)
}
