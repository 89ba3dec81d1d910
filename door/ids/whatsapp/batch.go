package whatsapp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/jsonscan"
)

// part is a message in a batch, or a status update of one.
type part struct {
	operation string
	phone     string // id of the phone number
	id        string // of the message
	key       string
	print     semel.Fingerprint
	raw       json.RawMessage
	mistake   inbox.Code // why it can't be processed; it is accepted anyway
}

// codeMalformed refuses a part that isn't in the form that WhatsApp sends.
const codeMalformed inbox.Code = "malformed"

const (
	messagesField = "messages" // the field of a change that has messages and statuses
	objectName    = "whatsapp_business_account"
	maxMessageID  = 256
)

// Bounds of a batch. A part costs much more than its bytes. WhatsApp sends up to 1,000 updates
// at once.
const (
	maxParts = 1000
	// maxVisited is how many items of lists the splitter looks at to find them.
	maxVisited = 4 * maxParts
)

var (
	errBody = errors.New("the body is no webhook of a WhatsApp business account")
	errMany = fmt.Errorf("the batch has more than %d messages and statuses", maxParts)
)

// splitter splits a body into parts.
type splitter struct {
	statuses bool
	visited  int
	parts    []part
}

// split splits a body into parts. It ignores irrelevant fields and unknown members, because
// WhatsApp adds some from time to time.
func split(body []byte, statuses bool) ([]part, error) {
	if object, _ := jsonscan.Text(jsonscan.Member(body, "object")); object != objectName || !json.Valid(body) {
		return nil, errBody
	}
	s := splitter{statuses: statuses}
	err := s.each(body, "entry", func(entry []byte) error {
		return s.each(entry, "changes", func(change []byte) error {
			if field, _ := jsonscan.Text(jsonscan.Member(change, "field")); field != messagesField {
				return nil
			}
			return s.change(jsonscan.Member(change, "value"))
		})
	})
	return s.parts, err
}

func (s *splitter) each(object []byte, name string, f func(item []byte) error) error {
	list := jsonscan.Member(object, name)
	if !isA('{', object) || !isA('[', list) {
		return errBody
	}
	for item := range jsonscan.Items(list) {
		if s.visited++; s.visited > maxVisited {
			return errMany
		}
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

// isA reports whether a value is an array or an object, by its bracket, or absent.
func isA(bracket byte, value []byte) bool {
	return len(value) == 0 || value[0] == bracket || value[0] == 'n'
}

func (s *splitter) change(value []byte) error {
	metadata := jsonscan.Member(value, "metadata")
	number := jsonscan.Member(metadata, "phone_number_id")
	phone, known := jsonscan.Text(number)
	messages, statuses := jsonscan.Member(value, "messages"), jsonscan.Member(value, "statuses")
	if !isA('{', value) || !isA('{', metadata) || !known && len(number) > 0 && number[0] != 'n' || !isA('[', messages) || !isA('[', statuses) {
		// Its phone number is unreadable, so it has no tenant and isn't accepted.
		return s.add(faulty(MessageOperation, "", value, codeMalformed))
	}
	if !s.statuses {
		statuses = nil
	}
	for _, list := range []struct {
		operation string
		items     []byte
	}{{MessageOperation, messages}, {StatusOperation, statuses}} {
		for raw := range jsonscan.Items(list.items) {
			if err := s.add(newPart(list.operation, phone, raw)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *splitter) add(p part) error {
	if len(s.parts) == maxParts {
		return errMany
	}
	s.parts = append(s.parts, p)
	return nil
}

// newPart finds the identity of a part: the ids of phone number and message, and for a status
// update also the status, because all updates of a message share its id.
func newPart(operation, phone string, raw json.RawMessage) part {
	if len(raw) > MaxMessage {
		return faulty(operation, phone, raw, inbox.CodeTooLong)
	}
	id, _ := jsonscan.Text(jsonscan.Member(raw, "id"))
	print, err := semel.FingerprintJSON(raw) // which refuses ambiguous JSON
	if err != nil || id == "" || len(id) > maxMessageID || strings.Contains(phone, "/") {
		return faulty(operation, phone, raw, codeMalformed)
	}
	key := phone + "/" + id
	if operation == StatusOperation {
		status, _ := jsonscan.Text(jsonscan.Member(raw, "status"))
		if status == "" || len(status) > maxMessageID || strings.Contains(status, "/") {
			return faulty(operation, phone, raw, codeMalformed)
		}
		key = phone + "/" + status + "/" + id
	}
	return part{operation: operation, phone: phone, id: id, key: key, print: print, raw: raw}
}

// faulty returns a part without an identity; its content identifies it instead. It is accepted
// once, and parked for an operator.
func faulty(operation, phone string, raw json.RawMessage, code inbox.Code) part {
	sum := sha256.Sum256(raw)
	name := "sha256:" + hex.EncodeToString(sum[:])
	return part{operation, phone, name, phone + "/" + name, semel.FingerprintOf(semel.SchemeRaw, raw), raw, code}
}
