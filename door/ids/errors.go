package ids

import "github.com/semelhq/semel"

// Reason says in one word why a command was refused before it reached the engine. A reason
// never changes its meaning.
type Reason string

// The reasons.
const (
	// ReasonEnvelope: the envelope isn't strict JSON, has an unknown member, or one of
	// the wrong type.
	ReasonEnvelope Reason = "invalid_envelope"
	// ReasonCommand: the registry has no such entity and action.
	ReasonCommand Reason = "unknown_command"
	// ReasonActor: the actor that the registry binds the command to is missing, or the envelope
	// has one that the registry doesn't allow (IDS-VII.6).
	ReasonActor Reason = "actor_not_declared"
	// ReasonArgs: the arguments do not fit their schema or can't be normalised.
	ReasonArgs Reason = "invalid_args"
	// ReasonEphemeral: by its name an argument differs in every delivery, and the registry
	// doesn't say what to do with it (IDS-VII.4).
	ReasonEphemeral Reason = "ephemeral_argument"
	// ReasonKind: the envelope's command_kind isn't the registry's.
	ReasonKind Reason = "command_kind_mismatch"
	// ReasonKey: the envelope's idempotency_key doesn't match its content: the same key,
	// another envelope (IDS-VIII.5).
	ReasonKey Reason = "idempotency_conflict"
)

// Error says why a command was refused. Nothing was executed and nothing recorded. It has names
// of members, but never their values.
type Error struct {
	Reason Reason `json:"reason"`
	// Path names the member, such as "intent.target[1]"; empty for the whole envelope.
	Path string `json:"path,omitempty"`
	// Message is the text for people.
	Message string `json:"message"`
	// Err is the cause; may be nil.
	Err error `json:"-"`
}

// Error returns one line.
func (e *Error) Error() string {
	text := string(e.Reason) + ": "
	if e.Path != "" {
		text += e.Path + ": "
	}
	text += e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is lets errors.Is compare with the engine's errors: a wrong key is a [semel.ErrConflict],
// everything else an invalid call.
func (e *Error) Is(target error) bool {
	t, ok := target.(*semel.Error)
	if e.Reason == ReasonKey {
		return ok && t.Code == semel.CodeConflict
	}
	return ok && t.Code == semel.CodeInvalidCall
}
