package mcp

import (
	"encoding/json"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
)

// The places of a confirmation. A client that can ask a person (elicitation) echoes the token as the
// requestState of a round with the person's answer; the program of any other sends it in _meta.
const (
	confirmState  = "semel-confirm-1:"
	confirmInput  = "semel_confirmation"
	confirmMember = vendor + "confirm"
)

// confirmed reads the confirmation of a call: its token, and the key of a call that has none of its
// own. The round in which a person has confirmed it is the call itself, so what that adds to the
// request isn't sent on.
func (c *conversation) confirmed() (token, key string, err error) {
	if c.policy.op.Confirmation == nil {
		return "", "", nil
	}
	token, _ = jsonscan.Text(jsonscan.Member(jsonscan.Member(c.req.params, "_meta"), confirmMember))
	if state, ours := strings.CutPrefix(c.asked.state, confirmState); ours {
		action, _ := jsonscan.Text(jsonscan.Member(jsonscan.Member(c.asked.responses, confirmInput), "action"))
		if action != "accept" {
			return "", "", &semel.Error{Code: semel.CodeConfirmationRefused, Message: "nobody has confirmed the call"}
		}
		token, c.asked.state, c.asked.responses = state, "", nil
		c.req.body = jsonscan.Without(jsonscan.Without(c.req.body, "params", "requestState"), "params", "inputResponses")
	}
	token, key, _ = strings.Cut(token, ":")
	return token, key, nil
}

// tokenOf is what confirms the call, once: this caller's, of this tool with these arguments. Empty: it
// needs no confirmation.
func (c *conversation) tokenOf(challenge *semel.Challenge) (token string) {
	if challenge != nil {
		token = challenge.Token
	}
	if c.loose && token != "" { // or the next delivery would be another call
		token += ":" + c.call.Key
	}
	return token
}

// confirmWords are for the model of a client that can't ask a person. The token is where the model
// doesn't look: one that confirmed its own calls would make it worth nothing.
const confirmWords = "This call needs the confirmation of a person, and nothing was executed. You can't confirm it yourself: ask the person. " +
	"Their program confirms it by sending the same call again, with the token in this result's _meta, " + confirmMember + ", in its own _meta under the same name."

// question asks a person by a round of the gateway's own; nil if the client can't ask. A round of the
// server's is confirmed otherwise: this one would take its place.
func (c *conversation) question(token string) []byte {
	form := jsonscan.Member(c.req.capable(), "elicitation")
	asks := c.req.modern && jsonrpc.First(form) == '{' && (jsonscan.Member(form, "form") != nil || jsonscan.Member(form, "url") == nil)
	if !asks || c.asked.state != "" || c.asked.responses != nil {
		return nil
	}
	question := map[string]any{"method": "elicitation/create", "params": map[string]any{
		"mode": "form", "message": "Run the tool " + c.asked.name + " once, with these arguments?\n\n" + string(c.asked.arguments),
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}},
	}}
	result, _ := json.Marshal(map[string]any{
		"resultType": "input_required", "inputRequests": map[string]any{confirmInput: question}, "requestState": confirmState + token,
	}) // strings
	return result
}
