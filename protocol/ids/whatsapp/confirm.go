package whatsapp

import (
	"strings"

	"github.com/semelhq/semel/protocol/ids"
)

// ConfirmButton is the id of a button, for a reply that asks for a confirmation: it
// has the command's id and the token, which go together (IDS-X.1). It is a secret: it
// belongs into the message to the sender and nowhere else. It is empty where there is
// nothing to confirm.
func ConfirmButton(r *ids.Response) string {
	if r.Confirmation == nil || r.Confirmation.Token == "" {
		return ""
	}
	// A token is base64url, which has no full stop.
	return r.Confirmation.Token + "." + r.CommandID
}

// Confirm makes the command that a button was about confirm by it: a mapper calls it
// with [Message.Button]. It reports false, and changes nothing, if the button is none
// of [ConfirmButton].
func Confirm(c *ids.Command, button string) bool {
	token, id, ok := strings.Cut(button, ".")
	if !ok || token == "" || id == "" {
		return false
	}
	c.ConfirmationToken, c.CommandID = token, id
	return true
}
