package whatsapp

import (
	"strings"

	"github.com/semelhq/semel/door/ids"
)

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
