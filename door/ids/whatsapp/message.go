package whatsapp

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/inbox"
)

// Message is a message to one of the app's phone numbers.
type Message struct {
	// TenantID is the tenant of the phone number.
	TenantID string `json:"tenant_id"`
	// PhoneNumberID is the id of the number that got the message.
	PhoneNumberID string `json:"phone_number_id"`
	// ID is the message's id: the same in all its deliveries.
	ID string `json:"message_id"`
	// From is the WhatsApp id of the sender, who is the command's actor.
	From string `json:"from"`
	// Type is the kind of message, such as "text" or "interactive".
	Type string `json:"type"`
	// Text is the text, or the label of the button that was pressed.
	Text string `json:"text,omitempty"`
	// Button is the id of the button, or of the row of a list, that was pressed. The app
	// chose it when it sent the button; it may contain a confirmation token.
	Button string `json:"button,omitempty"`
	// ReplyTo is the id of the message that it answers.
	ReplyTo string `json:"reply_to,omitempty"`
	// SentAt is when WhatsApp says that it was sent; ReceivedAt when it was accepted.
	SentAt     time.Time `json:"sent_at,omitzero"`
	ReceivedAt time.Time `json:"received_at"`
	// Raw is the message as received.
	Raw json.RawMessage `json:"message"`
}

// Status is a status update of a message that the app sent.
type Status struct {
	TenantID      string `json:"tenant_id"`
	PhoneNumberID string `json:"phone_number_id"`
	// ID is the message's id; all its updates have the same one.
	ID string `json:"message_id"`
	// Status is "sent", "delivered", "read", "failed" or another word. They come in any order.
	Status string `json:"status"`
	// To is the WhatsApp id of the recipient.
	To         string    `json:"to,omitempty"`
	At         time.Time `json:"at,omitzero"`
	ReceivedAt time.Time `json:"received_at"`
	// Raw is the update as received.
	Raw json.RawMessage `json:"raw"`
}

var errSender = errors.New("the message has no sender")

// messageOf reads the parts of a message that matter to commands.
func messageOf(it *inbox.Item[head]) (*Message, error) {
	var in struct {
		ID, From, Timestamp, Type string

		Text        struct{ Body string }
		Button      struct{ Payload, Text string }
		Interactive struct {
			Button struct{ ID, Title string } `json:"button_reply"`
			Row    struct{ ID, Title string } `json:"list_reply"`
		}
		Context struct{ ID string }
	}
	if err := json.Unmarshal(it.Body, &in); err != nil {
		return nil, err
	}
	if in.From == "" {
		return nil, errSender
	}
	return &Message{
		TenantID: it.Tenant, PhoneNumberID: it.Head.PhoneNumberID, ID: in.ID, From: in.From, Type: in.Type,
		Text:    cmp.Or(in.Text.Body, in.Button.Text, in.Interactive.Button.Title, in.Interactive.Row.Title),
		Button:  cmp.Or(in.Button.Payload, in.Interactive.Button.ID, in.Interactive.Row.ID),
		ReplyTo: in.Context.ID, SentAt: unix(in.Timestamp), ReceivedAt: it.ReceivedAt, Raw: it.Body,
	}, nil
}

func statusOf(it *inbox.Item[head]) (*Status, error) {
	var in struct {
		ID, Status, Timestamp string

		To string `json:"recipient_id"`
	}
	if err := json.Unmarshal(it.Body, &in); err != nil {
		return nil, err
	}
	return &Status{
		TenantID: it.Tenant, PhoneNumberID: it.Head.PhoneNumberID, ID: in.ID, Status: in.Status,
		To: in.To, At: unix(in.Timestamp), ReceivedAt: it.ReceivedAt, Raw: it.Body,
	}, nil
}

// unix reads seconds since 1970; for any other text it returns the zero time.
func unix(text string) time.Time {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// ConfirmButton returns the id of a button for a reply that asks for a confirmation: it
// has the command's id and the token, which go together (IDS-X.1). It is a secret: put it
// only into the message to the sender. It is empty if there is nothing to confirm.
func ConfirmButton(r *ids.Response) string {
	if r.Confirmation == nil || r.Confirmation.Token == "" {
		return ""
	}
	// A token is base64url, which has no full stop.
	return r.Confirmation.Token + "." + r.CommandID
}

// Confirm adds the confirmation of a button to its command; call it from a mapper with
// [Message].Button. It reports false, and changes nothing, if the button isn't from
// [ConfirmButton].
func Confirm(c *ids.Command, button string) bool {
	token, id, ok := strings.Cut(button, ".")
	if !ok || token == "" || id == "" {
		return false
	}
	c.ConfirmationToken, c.CommandID = token, id
	return true
}
