package a2a

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// message has the identity of a message to an agent, and the sender's wishes.
type message struct {
	id          string
	task        string // the task that it continues; empty: it starts one
	tenant      string // the agent's tenant, as the caller names it
	now         bool   // the caller doesn't want to wait until the task has ended
	text        []byte // as it came
	fingerprint semel.Fingerprint
}

// The names that we read. Servers that use protobuf's JSON take both spellings, so a message
// may have either, but not both.
var (
	paramNames   = []string{"tenant", "message", "configuration", "metadata"}
	messageNames = []string{"messageId", "message_id", "taskId", "task_id"}
)

// traceNames are the members of a message's metadata that describe its way here.
var traceNames = []string{"traceparent", "tracestate", "baggage"}

// readMessage reads the parameters of a message, strict JSON. The fingerprint covers everything
// that makes two messages different, even unknown members. It leaves out what only says how to
// answer, or how the message came: the configuration, the request's metadata, and the trace in
// the message's metadata. It covers the binding, because the answer has its form. The error is
// for the caller.
func readMessage(binding string, params []byte) (m message, err error) {
	text := jsonscan.Member(params, "message")
	m.text = text
	parts, meta := jsonscan.Member(text, "parts"), jsonscan.Member(text, "metadata")
	large := [][]byte{parts, meta} // digesting them checks them
	slices.SortFunc(large, func(a, b []byte) int { return cmp.Compare(cap(b), cap(a)) })
	if err := jsonscan.CheckBut(params, canon.Exact, large...); err != nil {
		return m, err
	}
	var faults [5]error
	faults[0], faults[1] = jsonscan.Spelled(params, paramNames...), jsonscan.Spelled(text, messageNames...)
	m.id, faults[2] = textOf(text, "messageId", "message_id")
	m.task, faults[3] = textOf(text, "taskId", "task_id")
	m.tenant, faults[4] = textOf(params, "tenant")
	switch err = errors.Join(faults[:]...); {
	case err != nil:
		return m, err
	case jsonscan.Member(params, "request") != nil:
		return m, errors.New("the parameters have the member request, which some agents take for message")
	case m.id == "":
		return m, errors.New("there is no message with a messageId")
	}
	how := jsonscan.Member(params, "configuration")
	m.now = string(jsonscan.Member(how, "blocking")) == "false" // in 0.3
	for _, name := range []string{"returnImmediately", "return_immediately"} {
		m.now = m.now || string(jsonscan.Member(how, name)) == "true"
	}
	rest, said := params, text
	for _, name := range []string{"message", "metadata", "configuration"} {
		rest = jsonscan.Without(rest, name) // the largest first, because the rest is copied
	}
	for _, name := range []string{"parts", "metadata", messageNames[0], messageNames[1]} {
		said = jsonscan.Without(said, name)
	}
	for _, name := range traceNames {
		meta = jsonscan.Without(meta, name)
	}
	h := sha256.New()
	h.Write(canon.Frame(nil, binding))
	for _, part := range [][]byte{rest, said, meta, parts} {
		if len(bytes.Trim(part, "{} \t\r\n")) == 0 {
			part = []byte("null") // it may have had only a trace
		}
		if err := canon.WriteFramed(h, part, canon.Exact); err != nil {
			return m, err
		}
	}
	m.fingerprint = store.NewFingerprint(semel.SchemeJSON, [sha256.Size]byte(h.Sum(nil)))
	return m, nil
}

// textOf returns the string under one of the names; empty if there is none, or it is null.
func textOf(object []byte, names ...string) (s string, err error) {
	for _, name := range names {
		value := jsonscan.Member(object, name)
		if value == nil || string(value) == "null" {
			continue
		}
		found, is := jsonscan.Text(value)
		switch {
		case !is:
			return "", fmt.Errorf("%s is not a string", names[0])
		case s != "" && found != "":
			return "", fmt.Errorf("%s is there in two spellings", names[0])
		}
		s = cmp.Or(found, s)
	}
	return s, nil
}

// scope narrows the identity of a call: the same messageId for another task, or to another
// tenant of the agent, is another message. Operators can read it unless it is long.
func (m *message) scope() string {
	list := url.Values{}
	if m.tenant != "" {
		list.Set("tenant", m.tenant)
	}
	if m.task != "" {
		list.Set("task", m.task)
	}
	text := list.Encode()
	if len(text) > store.MaxScopeLen {
		sum := sha256.Sum256([]byte(text))
		return "sha256=" + hex.EncodeToString(sum[:])
	}
	return text
}

// call makes a call from the message. The header may have another key for it; the error is for
// the caller.
func (m *message) call(g *guard, who semelhttp.Caller, header http.Header) (semel.Call, error) {
	key, given, fault := semelhttp.RequestKey(header, semelhttp.DefaultKeyHeader, store.MaxKeyLen)
	if fault != "" {
		return semel.Call{}, &semel.Error{Code: door.CodeKeyInvalid, Message: fault}
	}
	call := semel.Call{Operation: g.operation.Name, Key: key, Scope: m.scope(), Door: Name, Fingerprint: m.fingerprint}
	own := store.Attributes{}
	if !given {
		call.Key = m.id
	} else {
		own[store.AttributeRequestID] = m.id
	}
	call.Attributes = g.names.Of(own, "", header, m.text)
	who.Name(&call, g.operation.Share)
	return call, nil
}
