package whatsapp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/semelhq/semel"
)

// part is a message, or a status update of one, from a batch.
type part struct {
	operation string
	phone     string // id of the phone number
	id        string // of the message
	key       string
	print     semel.Fingerprint
	raw       json.RawMessage
	fault     string // why it can't be processed; it is accepted nevertheless
}

// Codes of parts that can't be processed.
const (
	codeMalformed = "malformed"
	codeTooLong   = "too_long"
)

const (
	messagesField = "messages" // the field of a change that has messages and statuses
	objectName    = "whatsapp_business_account"
	maxMessageID  = 256
)

var errBody = errors.New("the body is no webhook of a WhatsApp business account")

// split splits a body into parts. It ignores fields of no interest and unknown members,
// because WhatsApp adds some from time to time.
func split(body []byte, statuses bool) ([]part, error) {
	var b struct {
		Object string `json:"object"`
		Entry  []struct {
			Changes []struct {
				Field string          `json:"field"`
				Value json.RawMessage `json:"value"`
			} `json:"changes"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Object != objectName {
		return nil, errBody
	}
	var parts []part
	for _, e := range b.Entry {
		for _, c := range e.Changes {
			if c.Field == messagesField {
				parts = append(parts, splitChange(c.Value, statuses)...)
			}
		}
	}
	return parts, nil
}

func splitChange(value json.RawMessage, statuses bool) []part {
	var v struct {
		Metadata struct {
			PhoneNumberID string `json:"phone_number_id"`
		} `json:"metadata"`
		Messages []json.RawMessage `json:"messages"`
		Statuses []json.RawMessage `json:"statuses"`
	}
	if json.Unmarshal(value, &v) != nil {
		// Its phone number is unreadable, so it has no tenant and isn't accepted.
		return []part{faulty(MessageOperation, "", value, codeMalformed)}
	}
	var parts []part
	for _, raw := range v.Messages {
		parts = append(parts, newPart(MessageOperation, v.Metadata.PhoneNumberID, raw))
	}
	for _, raw := range v.Statuses {
		if statuses {
			parts = append(parts, newPart(StatusOperation, v.Metadata.PhoneNumberID, raw))
		}
	}
	return parts
}

// newPart finds the identity of a part: the ids of phone number and message, and for a
// status update the status too, because all updates of a message have its id.
func newPart(operation, phone string, raw json.RawMessage) part {
	if len(raw) > MaxMessage {
		return faulty(operation, phone, raw, codeTooLong)
	}
	var m struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	// The strict reader refuses ambiguous JSON.
	print, err := semel.FingerprintJSON(raw)
	if err != nil || json.Unmarshal(raw, &m) != nil || m.ID == "" || len(m.ID) > maxMessageID || strings.Contains(phone, "/") {
		return faulty(operation, phone, raw, codeMalformed)
	}
	p := part{operation: operation, phone: phone, id: m.ID, key: phone + "/" + m.ID, print: print, raw: raw}
	if operation == StatusOperation {
		if m.Status == "" || len(m.Status) > maxMessageID || strings.Contains(m.Status, "/") {
			return faulty(operation, phone, raw, codeMalformed)
		}
		p.key = phone + "/" + m.Status + "/" + m.ID
	}
	return p
}

// faulty is a part without an identity; it is identified by its content instead. It is
// accepted once, and parked for an operator.
func faulty(operation, phone string, raw json.RawMessage, code string) part {
	sum := sha256.Sum256(raw)
	name := "sha256:" + hex.EncodeToString(sum[:])
	p := part{operation: operation, phone: phone, id: name, key: phone + "/" + name, raw: raw, fault: code}
	p.print = semel.FingerprintOf(semel.SchemeRaw, raw)
	return p
}
