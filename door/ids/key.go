package ids

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
)

// KeyVersion begins every key. It names the rules that select and write the key inputs, and
// changes with them.
const KeyVersion = "ids1:"

// callerVersion begins the keys that callers choose, so that they can't equal derived keys.
const callerVersion = "caller:"

// Derivation is the result of applying a declaration to an envelope.
type Derivation struct {
	// Command is the envelope as the handler gets it, with its args normalised and nothing
	// stripped.
	Command Command
	// Entry is the declaration; nil if the key was derived without a registry.
	Entry *Entry
	// Canonical are the key inputs in their canonical form.
	Canonical []byte
	// Key is [KeyVersion] and the hexadecimal SHA-256 of Canonical.
	Key string
	// RecordKey is the key of the record: Key, or one that the caller chose.
	RecordKey string
	// Fingerprint is the fingerprint of Canonical. If two envelopes under one RecordKey differ
	// in it, that is a conflict (IDS-VIII.5).
	Fingerprint semel.Fingerprint
	// Principal is the value that the key is bound to, and PrincipalMember the envelope's
	// member that has it: actor_id or effective_actor_id.
	Principal       string
	PrincipalMember string
	// Entered has the paths of the envelope's members that are in the key. Stripped has all
	// others, each with the reason.
	Entered  []string
	Stripped []Stripped
}

// Stripped is a member of an envelope that stays out of the key.
type Stripped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Derive finds the declaration of a command, checks and normalises the envelope, and
// derives the key. The error is an [Error].
func (r *Registry) Derive(c Command) (*Derivation, error) {
	e, ok := r.Lookup(c.Intent.Entity, c.Intent.Action)
	if !ok {
		return nil, &Error{Reason: ReasonCommand, Path: "intent", Message: "the registry declares no such entity and action"}
	}
	return derive(c, e)
}

// Derive derives the key of a command without a registry: it normalises nothing, strips
// arguments with ephemeral names at any depth, and the principal is effective_actor_id, if
// there is one. To execute commands you need a [Registry].
func Derive(c Command) (*Derivation, error) { return derive(c, nil) }

func derive(c Command, e *Entry) (*Derivation, error) {
	d := &Derivation{Command: c, Entry: e}
	if err := d.bind(); err != nil {
		return nil, err
	}
	if e != nil && e.CommandKind != "" {
		if c.CommandKind != "" && c.CommandKind != e.CommandKind {
			return nil, &Error{Reason: ReasonKind, Path: "command_kind", Message: "the registry declares another"}
		}
		d.Command.CommandKind = e.CommandKind
	}
	args, err := d.args()
	if err == nil {
		err = d.digest(args)
	}
	if err != nil {
		return nil, err
	}
	return d, d.supplied()
}

// bind finds the principal (IDS-VII.6). If the declaration binds to the actor, it refuses an
// effective actor, which would have no effect although the caller expects one.
func (d *Derivation) bind() error {
	c := &d.Command
	refuse := func(path, message string) error {
		return &Error{Reason: ReasonActor, Path: path, Message: message}
	}
	d.PrincipalMember, d.Principal = "actor_id", c.ActorID
	switch {
	case d.Entry == nil && c.EffectiveActorID != "", d.Entry != nil && d.Entry.Binding.Principal == BindEffectiveActor:
		d.PrincipalMember, d.Principal = "effective_actor_id", c.EffectiveActorID
	case d.Entry != nil && c.EffectiveActorID != "":
		return refuse("effective_actor_id", "the registry binds the command to actor_id")
	}
	if d.Principal == "" {
		return refuse(d.PrincipalMember, "it is missing, and the command is bound to it")
	}
	return nil
}

// keyInputs are the members of the key. Their JSON names are part of its format.
type keyInputs struct {
	TenantID         string          `json:"tenant_id"`
	ActorID          string          `json:"actor_id,omitempty"`
	EffectiveActorID string          `json:"effective_actor_id,omitempty"`
	Intent           Intent          `json:"intent"`
	Args             json.RawMessage `json:"args"`
	CommandKind      string          `json:"command_kind,omitempty"`
}

// digest makes the canonical form, and the key from it.
func (d *Derivation) digest(args json.RawMessage) error {
	c := &d.Command
	in := keyInputs{TenantID: c.TenantID, Intent: c.Intent, Args: args, CommandKind: c.CommandKind}
	if d.PrincipalMember == "actor_id" {
		in.ActorID = d.Principal
	} else {
		in.EffectiveActorID = d.Principal
	}
	text, err := json.Marshal(in)
	if err == nil {
		text, err = canon.Canonicalize(text, canon.Exact)
	}
	if err != nil { // only possible for a Command that didn't come from ParseCommand
		return &Error{Reason: ReasonEnvelope, Message: "the key inputs have no JSON form", Err: err}
	}
	sum := sha256.Sum256(text)
	d.Canonical = text
	d.Key = KeyVersion + hex.EncodeToString(sum[:])
	d.RecordKey = d.Key
	d.Fingerprint = semel.FingerprintOf(semel.SchemeJSON, text)
	d.account()
	return nil
}

// supplied handles a key that the caller sent. If callers may choose the key, it is used.
// Otherwise it is what the caller expects, and a key that doesn't belong to this envelope
// is a collision (IDS-VIII.5).
func (d *Derivation) supplied() error {
	key := d.Command.IdempotencyKey
	switch {
	case key == "" || key == d.Key || KeyVersion+key == d.Key:
		return nil
	case d.Entry != nil && d.Entry.CallerKey:
		// The principal is part of a record's identity, unless keys are shared within the
		// tenant, so the key must have it.
		d.RecordKey = fmt.Sprintf("%s%d:%s:%s", callerVersion, len(d.Principal), d.Principal, key)
		return nil
	}
	return &Error{Reason: ReasonKey, Path: "idempotency_key", Message: "it is not the key of this envelope"}
}

// account lists the members of the envelope that are in the key, and why the others aren't.
func (d *Derivation) account() {
	c := &d.Command
	d.Entered = append(d.Entered, "tenant_id", d.PrincipalMember, "intent.entity", "intent.action")
	if !c.Intent.Target.IsZero() {
		d.Entered = append(d.Entered, "intent.target")
	}
	d.Entered = append(d.Entered, "args")
	if c.CommandKind != "" {
		d.Entered = append(d.Entered, "command_kind")
	}
	leave := func(given bool, path, why string) {
		if given {
			d.Stripped = append(d.Stripped, Stripped{path, why})
		}
	}
	leave(c.CommandID != "", "command_id", "names the delivery's command, and another delivery may have another")
	leave(c.ActorID != "" && d.PrincipalMember != "actor_id", "actor_id", "the command is bound to effective_actor_id")
	leave(c.CorrelationID != "", "correlation_id", "ties the delivery to a conversation")
	leave(len(c.Trace) > 0, "trace", "says how this delivery came")
	leave(!c.SentAt.IsZero(), "sent_at", "is a time, and says only whether the delivery is late")
	leave(!c.ReceivedAt.IsZero(), "received_at", "is the time of this delivery")
	leave(c.IdempotencyKey != "", "idempotency_key", "is compared with the key, and not part of it")
	leave(c.ConfirmationToken != "", "confirmation_token", "is random")
	leave(c.StepUp != "", "step_up", "is a proof for this delivery only")
}

// Hex returns the key without its version.
func (d *Derivation) Hex() string { return strings.TrimPrefix(d.Key, KeyVersion) }
