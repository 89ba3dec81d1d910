package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// attributeTool is the name under which a record keeps which tool was called.
const attributeTool = "tool"

// toolCall is what a call asks for.
type toolCall struct {
	name      string
	arguments []byte // without the places of keys; never nil
	state     string // the requestState of a round; empty: none
	responses []byte // its inputResponses; nil: none
	explicit  string // the key that it has; empty: none
	place     string // where that is
}

// keyPlaces are where a call may have its key: in _meta, as agents in commerce have it (UCP, ACP,
// x402), in the parameters (SEP-3182), and in the arguments (UCP, AdCP).
var keyPlaces = [][]string{
	{"_meta", "idempotency-key"}, {"_meta", "idempotency_key"}, {"_meta", "idempotencyKey"}, {"_meta", "x402/idempotency-key"},
	{"meta", "idempotency-key"}, {"meta", "idempotency_key"},
	{"idempotencyKey"},
	{"arguments", "meta", "idempotency-key"}, {"arguments", keyArgument},
}

// keyArgument is the argument that has the key for every tool.
const keyArgument = "idempotency_key"

// readCall reads the parameters of a tool call, strict JSON. parameter is an argument that is
// its key, if the tool has one. The error is for the caller.
func readCall(params []byte, header http.Header, parameter string) (c toolCall, err error) {
	if jsonrpc.First(params) != '{' {
		return c, invalid("its parameters aren't an object")
	}
	if err := jsonscan.Spelled(params, "name", "arguments", "inputResponses", "requestState", "_meta"); err != nil {
		return c, invalid(err.Error())
	}
	c.name, _ = jsonscan.Text(jsonscan.Member(params, "name"))
	c.arguments, c.responses = jsonscan.Member(params, "arguments"), jsonscan.Member(params, "inputResponses")
	state := jsonscan.Member(params, "requestState")
	if c.arguments == nil {
		c.arguments = []byte("{}")
	}
	var text bool
	c.state, text = jsonscan.Text(state)
	switch {
	case c.name == "":
		return c, invalid("it has no name that is a string")
	case jsonrpc.First(c.arguments) != '{':
		return c, invalid("its arguments aren't an object")
	case state != nil && !text:
		return c, invalid("its requestState isn't a string")
	}
	return c, c.findKey(params, header, parameter)
}

// findKey finds the one key of a call, and takes it out of the arguments.
func (c *toolCall) findKey(params []byte, header http.Header, parameter string) error {
	places := keyPlaces
	if parameter != "" {
		places = append(places[:len(places):len(places)], []string{"arguments", parameter})
	}
	for _, path := range places {
		value := params
		for _, name := range path {
			value = jsonscan.Member(value, name)
		}
		if value == nil || string(value) == "null" {
			continue
		}
		key, text := jsonscan.Text(value)
		if !text || key == "" {
			return &semel.Error{Code: door.CodeKeyInvalid, Message: "the key in " + strings.Join(path, ".") + " isn't a string, or is empty"}
		}
		if err := c.found(key, strings.Join(path, ".")); err != nil {
			return err
		}
		if path[0] == "arguments" {
			c.arguments = jsonscan.Without(c.arguments, path[1:]...)
		}
	}
	key, given, fault := semelhttp.RequestKey(header, semelhttp.DefaultKeyHeader, store.MaxKeyLen)
	switch {
	case fault != "":
		return &semel.Error{Code: door.CodeKeyInvalid, Message: fault}
	case given:
		return c.found(key, "the header "+semelhttp.DefaultKeyHeader)
	}
	return nil
}

// found takes note of a key. Two that differ can't both be the one that a retry repeats.
func (c *toolCall) found(key, place string) error {
	if c.explicit != "" && c.explicit != key {
		return &semel.Error{Code: door.CodeKeyInvalid, Message: fmt.Sprintf("the keys in %s and %s differ", c.place, place)}
	}
	c.explicit, c.place = key, place
	return nil
}

// fingerprint digests what makes two calls different: the tool, the arguments and what a round
// adds. The id, _meta and the trace don't, nor does the place of the key.
func (c *toolCall) fingerprint() (f semel.Fingerprint, err error) {
	h := sha256.New()
	h.Write(canon.Frame(canon.Frame(nil, c.name), c.state))
	responses := c.responses
	if responses == nil {
		responses = []byte("null")
	}
	for _, part := range [][]byte{c.arguments, responses} {
		if err := canon.WriteFramed(h, part, canon.Exact); err != nil {
			return f, invalid(err.Error())
		}
	}
	return store.NewFingerprint(semel.SchemeJSON, [sha256.Size]byte(h.Sum(nil))), nil
}

// round narrows the identity of a call by what a round adds, so that rounds are calls of their
// own (MRTR).
func (c *toolCall) round(f semel.Fingerprint) string {
	if c.state == "" && c.responses == nil {
		return ""
	}
	b, _ := f.AppendBinary(nil) // doesn't fail
	sum := sha256.Sum256(b)
	return "round=" + hex.EncodeToString(sum[:16])
}

// fieldsVersion names the rule that makes a key from fields.
const fieldsVersion = "semel-mcp-fields-1"

// fieldsKey makes the key of a call from the arguments that its tool declares.
func (c *toolCall) fieldsKey(fields []selector.Selector) (string, error) {
	doc, err := canon.Canonicalize(c.arguments, canon.Exact)
	if err != nil {
		return "", invalid(err.Error())
	}
	values := map[string]string{}
	for _, s := range fields {
		value, found, err := s.Find(&selector.Input{JSON: doc})
		if err != nil || !found {
			return "", invalid("it lacks the argument " + strings.TrimPrefix(s.String(), string(selector.Hash)+":") + ", which tells its repetition from another call")
		}
		values[s.String()] = value
	}
	inputs, _ := json.Marshal(map[string]any{"tool": c.name, "fields": values}) // strings
	return semel.DeriveKey(fieldsVersion, json.RawMessage(inputs))
}

// recognise makes the call that a request delivers. The error is for the caller.
func (c *conversation) recognise() (err error) {
	name, _ := jsonscan.Text(jsonscan.Member(c.req.params, "name"))
	c.policy = c.policyOf(name)
	if c.asked, err = readCall(c.req.params, c.req.in.Header, c.policy.KeyParameter); err != nil {
		return err
	}
	if err := compareParams(c.req.in.Header, jsonscan.Member(c.req.params, "arguments"), c.seen.of(name).mirrored); err != nil {
		return err
	}
	if c.passes() {
		return nil
	}
	token, key, err := c.confirmed()
	if err != nil {
		return err
	}
	f, err := c.asked.fingerprint()
	if err != nil {
		return err
	}
	op := &c.policy.op
	c.call = semel.Call{Operation: op.Name, Key: cmp.Or(c.asked.explicit, key), Scope: c.asked.round(f), Door: Name, Fingerprint: f, Confirm: token}
	share := op.Share
	switch {
	case c.call.Key != "":
	case len(c.policy.fields) > 0:
		// Two honest callers may ask for the same, so their credentials keep them apart.
		share = semel.ShareTenant
		c.call.Key, err = c.asked.fieldsKey(c.policy.fields)
	default:
		c.call.Key, c.loose = rand.Text(), true // unless it is the echo of another
	}
	if err != nil {
		return err
	}
	c.who.Name(&c.call, share)
	known := store.Attributes{attributeTool: c.asked.name}
	if c.policy.Reconcile != nil {
		known[attributeReconcile] = c.policy.Reconcile.arguments(c.asked.arguments)
	}
	c.call.Attributes = c.names.Of(known, "", c.req.in.Header, c.asked.arguments)
	return nil
}

// admit recognises a call that needs a guard, and looks whether it repeats another. The error is for
// the caller.
func (c *conversation) admit(ctx context.Context) error {
	err := c.recognise()
	if err == nil && c.loose && c.echoes != nil && !c.passes() {
		err = c.echo(ctx)
	}
	if err == nil && c.asked.state != "" && !c.passes() {
		err = c.useState(ctx)
	}
	return err
}

// echo gives a call that nothing tells from a repetition the key of the call that it repeats, or
// one of its own, and follows its answer.
func (c *conversation) echo(ctx context.Context) (err error) {
	if c.stream, c.repeats, err = c.echoes.admit(ctx, c.call, &c.policy.op, &c.who, c.opts.Timeout); err != nil {
		return err
	}
	c.call.Key = c.stream.key
	c.delivery = semelproxy.Follow(c.req.in, c.stream.heard)
	return nil
}
