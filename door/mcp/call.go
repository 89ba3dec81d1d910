package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/paramheader"
	"github.com/semelhq/semel/internal/toolcall"
	"github.com/semelhq/semel/store"
)

// attributeTool is the name under which a record keeps which tool was called.
const attributeTool = "tool"

// recognise makes the call that a request delivers. The error is for the caller.
func (c *conversation) recognise() (err error) {
	name, _ := jsonscan.Text(jsonscan.Member(c.req.params, "name"))
	c.policy = c.policyOf(name)
	if c.asked, err = toolcall.Read(c.req.params, c.policy.KeyParameter); err != nil {
		return err
	}
	key, given, fault := semelhttp.RequestKey(c.req.in.Header, semelhttp.DefaultKeyHeader, store.MaxKeyLen)
	if fault != "" {
		err = &semel.Error{Code: door.CodeKeyInvalid, Message: fault}
	} else if given {
		err = c.asked.Found(key, "the header "+semelhttp.DefaultKeyHeader)
	}
	if err != nil {
		return err
	}
	if why := paramheader.Compare(c.req.in.Header, jsonscan.Member(c.req.params, "arguments"), c.seen.Of(name).Mirrored); why != "" {
		return mismatch(why)
	}
	if c.passes() {
		return nil
	}
	token, key, err := c.confirmed()
	if err != nil {
		return err
	}
	f, err := c.asked.Fingerprint()
	if err != nil {
		return err
	}
	op := &c.policy.op
	c.call = semel.Call{Operation: op.Name, Key: cmp.Or(c.asked.Key, key), Scope: c.asked.Round(f), Door: Name, Fingerprint: f, Confirm: token}
	share := op.Share
	switch {
	case c.call.Key != "":
	case len(c.policy.fields) > 0:
		// Two honest callers may ask for the same, so their credentials keep them apart.
		share = semel.ShareTenant
		c.call.Key, err = c.asked.FieldsKey(c.policy.fields)
	default:
		c.call.Key, c.loose = rand.Text(), true // unless it is the echo of another
	}
	if err != nil {
		return err
	}
	c.who.Name(&c.call, share)
	known := store.Attributes{attributeTool: c.asked.Name}
	if c.policy.asking != nil {
		known[attributeReconcile] = c.policy.asking.arguments(c.asked.Arguments)
	}
	c.call.Attributes = c.names.Of(known, "", c.req.in.Header, c.asked.Arguments)
	return nil
}

// admit recognises a call that needs a guard, and looks whether it repeats another. The error is for
// the caller.
func (c *conversation) admit(ctx context.Context) error {
	err := c.recognise()
	if err == nil && c.asked.Key == "" && len(c.policy.fields) == 0 && c.echoes != nil && !c.passes() {
		err = c.echo(ctx)
	}
	if err == nil && c.asked.State != "" && !c.passes() {
		if err = c.useState(ctx); err != nil && c.stream != nil {
			c.withdraw()
			c.stream.finished(false, nil)
		}
	}
	return err
}

// echo gives a call that nothing tells from a repetition the key of the call that it repeats, or
// one of its own, and follows its answer.
func (c *conversation) echo(ctx context.Context) (err error) {
	if c.stream, c.repeats, err = c.echoes.admit(ctx, c.call, &c.policy.op, &c.who, c.opts.Timeout); err != nil || c.stream == nil {
		return err
	}
	c.call.Key = c.stream.key
	c.delivery = semelproxy.Follow(c.req.in, c.stream.heard)
	return nil
}

// withdraw removes what lists a new call without a known delivery, if the engine didn't begin it:
// nothing has run under its key, and an equal call that took its place meanwhile keeps that.
func (c *conversation) withdraw() {
	if c.stream != nil && !c.repeats {
		c.stream.heard(true)
	}
}

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
	token, _ = jsonscan.Text(jsonscan.At(c.req.params, "_meta", confirmMember))
	if state, ours := strings.CutPrefix(c.asked.State, confirmState); ours {
		action, _ := jsonscan.Text(jsonscan.At(c.asked.Responses, confirmInput, "action"))
		if action != "accept" {
			return "", "", &semel.Error{Code: semel.CodeConfirmationRefused, Message: "nobody has confirmed the call"}
		}
		token, c.asked.State, c.asked.Responses = state, "", nil
		c.req.body = jsonscan.Without(jsonscan.Without(c.req.body, "params", "requestState"), "params", "inputResponses")
	}
	token, key, _ = strings.Cut(token, ":")
	return token, key, nil
}

// tokenOf is what confirms the call, once: this caller's, of this tool with these arguments.
func (c *conversation) tokenOf(challenge *semel.Challenge) string {
	if c.loose { // or the next delivery would be another call
		return challenge.Token + ":" + c.call.Key
	}
	return challenge.Token
}

// confirmWords are for the model of a client that can't ask a person. The token is where the model
// doesn't look: one that confirmed its own calls would make it worth nothing.
func (c *conversation) confirmWords(record string) string {
	again := "exactly the same arguments"
	if c.loose && c.echoes == nil {
		again += ", and " + toolcall.KeyArgument + " " + c.call.Key + " beside them"
	}
	return "This call needs the confirmation of a person, and nothing was executed. You can't confirm it yourself: ask the person. " +
		"They confirm it on Semel's dashboard, or by the command: semel records confirm '" + record + "' --reason WHY. " +
		"When they have, call the tool again within minutes, with " + again + ": it runs once. Other arguments are another call. " +
		"Or their program sends the same call, with the token in this result's _meta, " + confirmMember + ", in its own _meta under the same name."
}

// asks reports whether a person can be asked by a round of the gateway's own. A round of the server's
// is confirmed otherwise: this one would take its place.
func (c *conversation) asks() bool {
	form := jsonscan.Member(c.req.capable(), "elicitation")
	return c.req.modern && jsonrpc.First(form) == '{' && (jsonscan.Member(form, "form") != nil || jsonscan.Member(form, "url") == nil) &&
		c.asked.State == "" && c.asked.Responses == nil
}

// question asks a person.
func (c *conversation) question(token string) []byte {
	question := map[string]any{"method": "elicitation/create", "params": map[string]any{
		"mode": "form", "message": "Run the tool " + c.asked.Name + " once, with these arguments?\n\n" + string(c.asked.Arguments),
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}},
	}}
	result, _ := json.Marshal(map[string]any{
		"resultType": "input_required", "inputRequests": map[string]any{confirmInput: question}, "requestState": confirmState + token,
	}) // strings
	return result
}
