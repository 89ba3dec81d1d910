package evidence

import (
	"strconv"
	"time"

	"github.com/semelhq/semel/internal/canon"
)

// Leaves and openings are written by hand and not by encoding/json, because two of them
// belong to most calls: a test holds one form against the other.

// appendJSON appends the leaf in canonical JSON (RFC 8785): members in the order of
// their names, without white space.
func (a *Artifact) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendMember(b, "artifact_id", a.ID)
	b = appendMember(b, "artifact_type", string(a.Type))
	b = appendMember(b, "commitment", a.Commitment)
	b = a.EmittedAt.AppendFormat(append(b, `,"emitted_at":"`...), time.RFC3339Nano)
	b = a.Payload.appendJSON(append(b, `","payload":`...))
	b = appendMember(b, "tenant_id", a.Tenant)
	b = strconv.AppendInt(append(b, `,"v":`...), int64(a.Version), 10)
	b[start] = '{' // instead of the first comma
	return append(b, '}')
}

func (p *Payload) appendJSON(b []byte) []byte {
	start := len(b)
	if p.Attempt != 0 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(p.Attempt), 10)
	}
	b = appendMember(b, "by", p.By)
	b = appendMember(b, "change", string(p.Change))
	b = appendMember(b, "content", p.Content)
	b = appendMember(b, "decision", p.Decision)
	b = appendMember(b, "disposition", p.Disposition)
	b = appendMember(b, "durability", string(p.Durability))
	if p.Executed != nil {
		b = strconv.AppendBool(append(b, `,"executed":`...), *p.Executed)
	}
	b = appendMember(b, "fence", p.Fence)
	b = appendMember(b, "fingerprint", p.Fingerprint)
	if !p.KeptUntil.IsZero() {
		b = append(p.KeptUntil.AppendFormat(append(b, `,"kept_until":"`...), time.RFC3339Nano), '"')
	}
	b = appendMember(b, "outcome_ref", p.OutcomeRef)
	b = appendMember(b, "presented_fingerprint", p.Presented)
	b = appendMember(b, "reason", p.Reason)
	b = appendMember(b, "record_ref", p.Record)
	b = appendMember(b, "state", p.State)
	if len(b) == start {
		return append(b, `{}`...)
	}
	b[start] = '{'
	return append(b, '}')
}

// appendJSON appends the opening in canonical JSON.
func (o *Opening) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendMember(b, "command_id", o.CommandID)
	b = appendMember(b, "correlation_id", o.CorrelationID)
	b = appendMember(b, "failure_code", o.FailureCode)
	b = appendMember(b, "fingerprint", o.Fingerprint)
	b = appendText(b, "idempotency_key", o.IdempotencyKey)
	b = appendMember(b, "item", o.Item)
	b = appendText(b, "operation", o.Operation)
	b = appendMember(b, "outcome_sha256", o.OutcomeSHA256)
	b = appendMember(b, "presented_by", o.PresentedBy)
	b = appendMember(b, "presented_command_id", o.PresentedCommandID)
	b = appendMember(b, "presented_fingerprint", o.PresentedFingerprint)
	b = appendMember(b, "presented_request_id", o.PresentedRequestID)
	b = appendText(b, "principal", o.Principal)
	b = appendMember(b, "reason", o.Reason)
	b = appendMember(b, "request_id", o.RequestID)
	b = appendText(b, "salt", o.Salt)
	b = appendMember(b, "settled_by", o.SettledBy)
	b = appendText(b, "tenant_id", o.Tenant)
	b[start] = '{'
	return append(b, '}')
}

// appendMember appends a comma and a member, unless that is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(b, name, value)
}

func appendText(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	text, err := canon.AppendString(b, value)
	if err != nil { // it is no UTF-8: as encoding/json has it
		text, _ = canon.AppendString(b, string([]rune(value)))
	}
	return text
}
