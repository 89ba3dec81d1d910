package ids

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
)

// Status is the status of a command, in the words of the specification (IDS-VIII.2) if it
// has one.
type Status string

// The statuses.
const (
	// StatusProcessing answers a delivery while its command is in progress (IDS-IX.2), and
	// StatusInProgress is the state of its record (IDS-VIII.7).
	StatusProcessing  Status = "processing"
	StatusInProgress  Status = "in_progress"
	StatusExecuted    Status = "executed"
	StatusFailed      Status = "failed"
	StatusRejected    Status = "rejected"
	StatusCompensated Status = "compensated"
	// StatusUnconfirmed: it waits for a confirmation, and nothing was executed. The
	// specification has no word for it.
	StatusUnconfirmed Status = "confirmation_required"
)

// The dedupe decisions that responses show (IDS-XII.3).
const (
	FirstSeen         = evidence.DecisionFirstSeen
	DuplicateReplayed = evidence.DecisionReplayed
	ConflictRejected  = evidence.DecisionConflict
)

// Reasons in responses, besides the handlers' own.
const (
	// ReasonUnknownOutcome: the holder is gone, an effect is possible, and nothing is
	// executed until the call is settled.
	ReasonUnknownOutcome = "outcome_unknown"
	// ReasonNotKept: it was executed, but its outcome was too large to keep.
	ReasonNotKept = "outcome_not_kept"
)

// Response is the answer to a delivery. It is the same for every delivery of a
// command, except for the decision and for members that a reader may not see (IDS-IX.4).
type Response struct {
	// Type is the matching type of evidence, such as "execution.executed".
	Type   evidence.Type `json:"type"`
	Status Status        `json:"status"`
	// Decision says what this delivery got; empty if there was no delivery.
	Decision string `json:"decision,omitempty"`
	// Reason says in one word why it was rejected, failed, or isn't settled.
	Reason string `json:"reason,omitempty"`
	// Detail says the same for people.
	Detail string `json:"detail,omitempty"`
	// CommandID and CorrelationID come from the first delivery.
	CommandID     string `json:"command_id"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// Command is the kind of command, such as "order.cancel".
	Command        string `json:"command"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Summary is the text for the person.
	Summary string `json:"summary,omitempty"`
	// Outcome is what the handler returned.
	Outcome json.RawMessage `json:"outcome,omitempty"`
	// OutcomeRef is the digest of the outcome, as in the command's evidence.
	OutcomeRef string `json:"outcome_ref,omitempty"`
	// Redacted says that this reader doesn't see all of it (IDS-XV.4).
	Redacted bool `json:"redacted,omitempty"`
	// StatusID names the command in requests for its state, and StatusURL is the address to ask.
	StatusID  string `json:"status_id,omitempty"`
	StatusURL string `json:"status_url,omitempty"`
	// Confirmation is what the caller needs to confirm the command. It has a token only once,
	// valid for the same envelope with CommandID as its command_id (IDS-X.1).
	Confirmation *semel.Challenge `json:"confirmation,omitempty"`
	// Compensation is the command that undid this one.
	Compensation string `json:"compensation,omitempty"`
	// EnvelopeFingerprint is the digest of the envelope's key inputs.
	EnvelopeFingerprint string `json:"envelope_fingerprint,omitempty"`
	// CreatedAt, UpdatedAt and TTLExpiresAt come from the dedup record (IDS-VIII.2). Its window
	// begins when the command has ended: until then TTLExpiresAt is the earliest time when it
	// can end.
	CreatedAt    store.Instant `json:"created_at,omitzero"`
	UpdatedAt    store.Instant `json:"updated_at,omitzero"`
	TTLExpiresAt store.Instant `json:"ttl_expires_at,omitzero"`
	// RetryAfter is when asking again makes sense.
	RetryAfter time.Duration `json:"-"`

	// told is the engine's decision, as an event.
	told semel.Delivered
}

// code returns why the response has no outcome; empty if it has one.
func (r *Response) code() semel.Code {
	switch {
	case r.Decision == ConflictRejected:
		return semel.CodeConflict
	case r.Status == StatusUnconfirmed:
		return semel.CodeConfirmationRequired
	case r.Reason == ReasonUnknownOutcome:
		return semel.CodeHeld
	case r.unended():
		return semel.CodeInFlight
	}
	return ""
}

// Outcome is the return value of a handler: a summary for the person, which all deliveries get,
// and the outcome for programs.
type Outcome struct {
	Summary string `json:"summary"`
	// Outcome is any JSON.
	Outcome json.RawMessage `json:"outcome,omitempty"`
}

// Done returns the result of a successful handler. outcome may be nil. If it has no JSON form,
// the error is [semel.Unknown], because the work is done anyway.
func Done(summary string, outcome any) (semel.Result, error) {
	o := Outcome{Summary: summary}
	var err error
	if outcome != nil {
		if o.Outcome, err = json.Marshal(outcome); err != nil {
			return semel.Result{}, semel.Unknown(err) // it is done; only its outcome can't be expressed
		}
	}
	data, err := json.Marshal(o)
	return semel.Result{Data: data}, err
}

// outcomeOf reads a stored result, from [Done] or from a URL's answer. In an object with a text
// as its summary, that is for the person, and for programs there is its outcome, or else its
// other members. Any other JSON is an outcome without a summary, and anything else its text.
func outcomeOf(data []byte) Outcome {
	var o Outcome
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) == nil && members["summary"] != nil && json.Unmarshal(data, &o) == nil {
		if delete(members, "summary"); members["outcome"] == nil && len(members) > 0 {
			o.Outcome, _ = json.Marshal(members) // they came from JSON
		}
		return o
	}
	if json.Valid(data) {
		return Outcome{Outcome: data}
	}
	text, _ := json.Marshal(string(data)) // a string always has a JSON form
	return Outcome{Outcome: text}
}

// respond makes the response to a delivery that got ans and err from the engine. It passes on
// an error that isn't an outcome.
func (g *Gateway) respond(caller Caller, e *Entry, c *Command, ans *semel.Answer, err error) (*Response, error) {
	if ans.Decision == semel.Conflict {
		return conflict(c, ans, "the key was used with another envelope"), nil
	}
	rec := ans.Record
	if rec == nil {
		return nil, err
	}
	r := &Response{
		CommandID: c.CommandID, CorrelationID: c.CorrelationID, Command: rec.ID.Operation,
		StatusID: rec.ID.Encode(), RetryAfter: ans.RetryAfter, told: door.EventOf(ans),
	}
	if id := rec.Attributes[semel.AttributeCommandID]; id != "" || c.CommandID == "" {
		r.CommandID, r.CorrelationID = id, rec.Attributes[store.AttributeCorrelationID]
	}
	if e.Class == semel.ReadOnly {
		if r.StatusID = ""; err != nil && rec.State != semel.Failed { // there is no state to ask for
			return nil, err
		}
		return r.ended(caller, e, rec), nil
	}
	r.StatusURL = g.opts.StatusURL + "/" + r.StatusID
	r.identify(rec)
	switch {
	case ans.Challenge != nil && errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}):
		r.Type, r.Status, r.Confirmation = evidence.TypeConfirmationRequested, StatusUnconfirmed, ans.Challenge
		r.Detail = "Nothing was executed. To confirm, deliver the same envelope again with this command_id and the token as confirmation_token."
		if ans.Challenge.StepUp {
			r.Detail += " A further proof is needed, as step_up."
		}
		return r, nil
	case ans.Decision == semel.InFlight:
		r.Type, r.Status = evidence.TypeAnswered, StatusProcessing
		r.Detail = "The first delivery of this command is being executed."
		return r, nil
	case rec.Held && (ans.Decision == semel.Held || ans.Decision == semel.Execute):
		r.Type, r.Status, r.Reason = evidence.TypeHeld, StatusProcessing, ReasonUnknownOutcome
		r.Detail = "The command was executed at least in part, and its outcome is not known. It is not executed again until that is settled."
		return r, nil
	case !rec.State.Terminal() || ans.Decision != semel.Execute && ans.Decision != semel.Replay:
		return nil, err
	}
	r.Decision = FirstSeen
	if ans.Decision == semel.Replay {
		r.Decision = DuplicateReplayed
	}
	return r.ended(caller, e, rec), nil
}

func (r *Response) identify(rec *semel.Record) {
	r.IdempotencyKey = rec.ID.Key
	r.CreatedAt, r.UpdatedAt, r.TTLExpiresAt = rec.CreatedAt, rec.UpdatedAt, rec.ExpiresAt
	if r.TTLExpiresAt == 0 {
		r.TTLExpiresAt = rec.UpdatedAt.Add(rec.Policy.Stays())
	}
	if !rec.Fingerprint.IsZero() {
		r.EnvelopeFingerprint = rec.Fingerprint.String()
	}
}

// endings are the ways in which a command ends.
var endings = map[store.Disposition]Response{
	semel.DispositionCompleted: {Type: evidence.TypeExecuted, Status: StatusExecuted},
	semel.DispositionRejected:  {Type: evidence.TypeRejected, Status: StatusRejected, Reason: evidence.ReasonRejected},
	semel.DispositionFailed:    {Type: evidence.TypeFailed, Status: StatusFailed, Reason: "failed"},
	semel.DispositionAborted:   {Type: evidence.TypeAborted, Status: StatusFailed, Reason: string(semel.CodeAborted)},
	semel.DispositionAbandoned: {Type: evidence.TypeAbandoned, Status: StatusFailed, Reason: "abandoned"},
}

// ended says how the command ended, and shows the caller what they may see.
func (r *Response) ended(caller Caller, e *Entry, rec *semel.Record) *Response {
	how := endings[rec.Disposition]
	r.Type, r.Status, r.Reason = how.Type, how.Status, how.Reason
	if rec.Settled != nil && rec.State.Terminal() {
		r.Type = evidence.TypeSettled
	}
	if f := rec.Failure; f != nil && rec.State == semel.Failed {
		r.Reason, r.Detail = cmp.Or(f.Code, r.Reason), f.Message
	}
	if f := rec.Failure; f != nil && f.Code == string(semel.CodeConfirmationRequired) {
		r.Type, r.Status = evidence.TypeConfirmationRequested, StatusUnconfirmed
	}
	if comp := rec.Compensation; comp != nil && comp.State == store.CompensationDone {
		r.Status, r.Compensation = StatusCompensated, comp.ID(rec.ID.Tenant).Encode()
	}
	r.show(caller, e, rec)
	return r
}

// show adds the outcome, as far as the caller may see it now, whatever the first delivery's
// caller could see then (IDS-XV.4).
func (r *Response) show(caller Caller, e *Entry, rec *semel.Record) {
	reader := e.MayRead(caller.Rights)
	if !reader && rec.Failure != nil && r.Status != StatusUnconfirmed && r.Detail != "" {
		r.Redacted, r.Detail = true, "" // it comes from the handler, and may reveal as much as an outcome
	}
	if rec.Result.IsZero() {
		return
	}
	if digest := evidence.OutcomeDigest(rec); digest != [len(digest)]byte{} {
		r.OutcomeRef = "sha256:" + hex.EncodeToString(digest[:])
	}
	if rec.Result.Tombstone {
		r.Reason, r.Detail = ReasonNotKept, "It has ended, and its outcome isn't kept."
		return
	}
	if !reader {
		r.Redacted = true
		return
	}
	o := outcomeOf(rec.Result.Data)
	shown, hidden, ok := e.redact(o.Outcome, caller.Rights)
	if hidden || !ok {
		// The summary contains the hidden values, and the detail may.
		r.Redacted, r.Detail = true, ""
		if ok {
			r.Outcome = shown
		}
		return
	}
	r.Summary, r.Outcome = o.Summary, shown
}

// conflict returns the answer to a delivery with another envelope's key. It reveals nothing
// about the other one (IDS-VIII.5).
func conflict(c *Command, ans *semel.Answer, why string) *Response {
	return &Response{
		Type: evidence.TypeRejected, Status: StatusRejected, Decision: ConflictRejected, Reason: string(ReasonKey),
		Detail: "Nothing was executed: " + why + ".", CommandID: c.CommandID, CorrelationID: c.CorrelationID, Command: c.Intent.Name(), told: door.EventOf(ans),
	}
}
