// Package toolcall reads descriptions of tools and their calls, as MCP has them, and finds what tells
// one call from another: its key, wherever that is, its fields, and its fingerprint.
package toolcall

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// Invalid says that a call isn't one.
func Invalid(message string) error {
	return &semel.Error{Code: semel.CodeInvalidCall, Message: "the tool call isn't valid: " + message}
}

// Call is what a tool call asks for.
type Call struct {
	Name      string
	Arguments []byte // in canonical form, without the places of keys; never nil
	State     string // the requestState of a round; empty: none
	Responses []byte // its inputResponses; nil: none
	Key       string // the key that it has; empty: none
	place     string // where that is
}

// keyPlaces are where a call may have its key: in _meta, as agents in commerce have it (UCP, ACP,
// x402), in the parameters (SEP-3182), and in the arguments (UCP, AdCP).
var keyPlaces = [][]string{
	{"_meta", "idempotency-key"}, {"_meta", "idempotency_key"}, {"_meta", "idempotencyKey"}, {"_meta", "x402/idempotency-key"},
	{"meta", "idempotency-key"}, {"meta", "idempotency_key"},
	{"idempotencyKey"},
	{"arguments", "meta", "idempotency-key"}, {"arguments", KeyArgument},
}

// KeyArgument is the argument that has the key for every tool.
const KeyArgument = "idempotency_key"

// Read reads the parameters of a tool call, strict JSON but for the arguments, which it checks.
// parameter is an argument that is its key, if the tool has one. The error is for the caller.
func Read(params []byte, parameter string) (c Call, err error) {
	if jsonrpc.First(params) != '{' {
		return c, Invalid("its parameters aren't an object")
	}
	if err := jsonscan.Spelled(params, "name", "arguments", "inputResponses", "requestState", "_meta"); err != nil {
		return c, Invalid(err.Error())
	}
	c.Name, _ = jsonscan.Text(jsonscan.Member(params, "name"))
	c.Arguments, c.Responses = jsonscan.Member(params, "arguments"), jsonscan.Member(params, "inputResponses")
	state := jsonscan.Member(params, "requestState")
	if c.Arguments == nil {
		c.Arguments = []byte("{}")
	}
	var text bool
	c.State, text = jsonscan.Text(state)
	switch {
	case c.Name == "":
		return c, Invalid("it has no name that is a string")
	case jsonrpc.First(c.Arguments) != '{':
		return c, Invalid("its arguments aren't an object")
	case state != nil && !text:
		return c, Invalid("its requestState isn't a string")
	}
	if err = c.findKey(params, parameter); err != nil {
		return c, err
	}
	// They may be large, so they are read once, for the key as for the fingerprint.
	if c.Arguments, err = canon.Canonicalize(c.Arguments, canon.Exact); err != nil {
		return c, jsonrpc.NotJSON(err)
	}
	return c, nil
}

// findKey finds the one key of a call, and takes it out of the arguments.
func (c *Call) findKey(params []byte, parameter string) error {
	places := keyPlaces
	if parameter != "" {
		places = append(places[:len(places):len(places)], []string{"arguments", parameter})
	}
	for _, path := range places {
		value := jsonscan.At(params, path...)
		if value == nil || string(value) == "null" {
			continue
		}
		key, text := jsonscan.Text(value)
		if !text || key == "" {
			return &semel.Error{Code: door.CodeKeyInvalid, Message: "the key in " + strings.Join(path, ".") + " isn't a string, or is empty"}
		}
		if err := c.Found(key, strings.Join(path, ".")); err != nil {
			return err
		}
		if path[0] == "arguments" {
			c.Arguments = jsonscan.Without(c.Arguments, path[1:]...)
		}
	}
	return nil
}

// Found takes note of a key, and where it was. Two that differ can't both be the one that a retry repeats.
func (c *Call) Found(key, place string) error {
	if c.Key != "" && c.Key != key {
		return &semel.Error{Code: door.CodeKeyInvalid, Message: fmt.Sprintf("the keys in %s and %s differ", c.place, place)}
	}
	c.Key, c.place = key, place
	return nil
}

// Fingerprint digests what makes two calls different: the tool, the arguments and what a round
// adds. The id, _meta and the trace don't, nor does the place of the key.
func (c *Call) Fingerprint() (f semel.Fingerprint, err error) {
	h := sha256.New()
	h.Write(binary.AppendUvarint(canon.Frame(canon.Frame(nil, c.Name), c.State), uint64(len(c.Arguments))))
	h.Write(c.Arguments)
	responses := c.Responses
	if responses == nil {
		responses = []byte("null")
	}
	if err := canon.WriteFramed(h, responses, canon.Exact); err != nil {
		return f, Invalid(err.Error())
	}
	return store.NewFingerprint(semel.SchemeJSON, [sha256.Size]byte(h.Sum(nil))), nil
}

// Round narrows the identity of a call by what a round adds, so that rounds are calls of their
// own (MRTR).
func (c *Call) Round(f semel.Fingerprint) string {
	if c.State == "" && c.Responses == nil {
		return ""
	}
	b, _ := f.AppendBinary(nil) // doesn't fail
	sum := sha256.Sum256(b)
	return "round=" + hex.EncodeToString(sum[:16])
}

// fieldsVersion names the rule that makes a key from fields.
const fieldsVersion = "semel-mcp-fields-1"

// Field reads a JSON pointer to an argument.
func Field(pointer string) (selector.Selector, error) {
	s, err := selector.Parse(string(selector.Hash)+":"+pointer, []selector.Source{selector.Hash})
	if err == nil && pointer == "" {
		err = errors.New("the empty JSON pointer is all arguments")
	}
	return s, err
}

// FieldsKey makes the key of a call from the arguments that its tool declares.
func (c *Call) FieldsKey(fields []selector.Selector) (string, error) {
	values := map[string]string{}
	for _, s := range fields {
		value, found, err := s.Find(&selector.Input{JSON: c.Arguments})
		if err != nil || !found {
			return "", Invalid("it lacks the argument " + strings.TrimPrefix(s.String(), string(selector.Hash)+":") + ", which tells its repetition from another call")
		}
		values[s.String()] = value
	}
	inputs, _ := json.Marshal(map[string]any{"tool": c.Name, "fields": values}) // strings
	return semel.DeriveKey(fieldsVersion, json.RawMessage(inputs))
}
