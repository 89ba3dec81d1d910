// Package jsonrpc reads JSON-RPC 2.0 requests from strangers, and the answers to them, for gateways
// that pass them on: strictly, by exact names, and without copying parameters or results.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// Version is the only version.
const Version = "2.0"

// The codes of errors. Codes from ServerError to -32099 belong to the server.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
	ServerError    = -32000
)

// Error describes a faulty request to its sender.
type Error struct {
	Code    int
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// NotJSON returns the error for a text that isn't strict JSON.
func NotJSON(err error) *Error {
	return &Error{ParseError, "The body isn't strict JSON: " + err.Error() + "."}
}

// Request is one request. Its members are slices of the text.
type Request struct {
	ID     []byte // a string or a number; nil if it has none that we can read
	Method string
	Params []byte // nil if there are none; not checked
}

// Read reads a request. It refuses notifications, because nobody could get their answer, and
// whatever [ReadMessage] refuses.
func Read(text []byte) (Request, error) {
	m, err := ReadMessage(text)
	if err == nil && m.ID == nil {
		err = noID
	} else if err == nil && m.Answers {
		err = notRequest
	}
	return m.Request, err
}

var (
	noID       = &Error{InvalidRequest, "The request has no id that is a string or a number."}
	notRequest = &Error{InvalidRequest, "The body isn't a request of JSON-RPC 2.0."}
)

// Message is one request; or a notification, which has no ID; or the answer to a request, which
// has no Method.
type Message struct {
	Request
	Answers bool // it has a result or an error
}

// ReadMessage reads a message. It refuses batches, and members that JSON-RPC doesn't have,
// however harmless: a server that compares names differently might run another method. It leaves
// checking the parameters to their reader: the text is strict JSON if they are. The error is an
// [*Error]; the message then has its ID if there was one.
func ReadMessage(text []byte) (m Message, err error) {
	if err := jsonscan.CheckBut(text, canon.Exact, jsonscan.Member(text, "params")); err != nil {
		return m, NotJSON(err)
	}
	if First(text) == '[' {
		return m, &Error{InvalidRequest, "There are no batches here. Send one request."}
	}
	r := &m.Request
	var version string
	var strange, named bool
	for name, value := range jsonscan.Members(text) {
		switch string(name) {
		case "jsonrpc":
			version, _ = jsonscan.Text(value)
		case "method":
			r.Method, _ = jsonscan.Text(value)
		case "id":
			r.ID, named = value, true
		case "params":
			r.Params = value
		case "result", "error":
			m.Answers = true
		default:
			strange = true
		}
	}
	if c := First(r.ID); c != '"' && c != '-' && (c < '0' || c > '9') {
		r.ID = nil
	}
	switch {
	case r.ID == nil && named:
		return m, noID
	case version != Version || m.Answers == (r.Method != "") || m.Answers && r.Params != nil:
		return m, notRequest
	case strange:
		return m, &Error{InvalidRequest, "The request has a member that JSON-RPC 2.0 doesn't have."}
	}
	return m, nil
}

// IDs yields a pointer (RFC 6901) to the id of a request, or to that of each one in a batch. Use it
// where you pass on bodies that may be JSON-RPC: it doesn't check the rest of the text.
func IDs(text []byte) iter.Seq[string] {
	identified := func(text []byte) bool {
		version, _ := jsonscan.Text(jsonscan.Member(text, "jsonrpc"))
		return version == Version && jsonscan.Member(text, "id") != nil
	}
	return func(yield func(string) bool) {
		if First(text) != '[' {
			_ = identified(text) && yield("/id")
			return
		}
		n := 0
		for item := range jsonscan.Items(text) {
			if identified(item) && !yield("/"+strconv.Itoa(n)+"/id") {
				return
			}
			n++
		}
	}
}

// ReadAnswer reads an answer to the request with an id: its result or its error. It reports
// false if the text isn't such an answer. An error may lack the id, if its sender couldn't read
// the request.
func ReadAnswer(text, id []byte) (result, failure []byte, ok bool) {
	if canon.Check(text, canon.Exact) != nil {
		return nil, nil, false
	}
	version, _ := jsonscan.Text(jsonscan.Member(text, "jsonrpc"))
	result, failure = present(jsonscan.Member(text, "result")), present(jsonscan.Member(text, "error"))
	echo := present(jsonscan.Member(text, "id"))
	known := same(echo, id) || echo == nil && failure != nil
	return result, failure, version == Version && known && (result == nil) != (failure == nil)
}

// Answer makes an answer to the request with an id, with a result or an error as given.
func Answer(id, result, failure []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	raw := append([]byte(`{"jsonrpc":"`+Version+`","id":`), id...)
	for _, m := range []struct {
		name  string
		value []byte
	}{{"result", result}, {"error", failure}} {
		if len(m.value) > 0 {
			raw = append(append(raw, `,"`+m.name+`":`...), m.value...)
		}
	}
	return append(raw, '}')
}

// ErrorOf makes the error of an answer. data may be nil.
func ErrorOf(code int, message string, data map[string]any) []byte {
	failure := map[string]any{"code": code, "message": message}
	if data != nil {
		failure["data"] = data
	}
	text, _ := json.Marshal(failure) // what comes from us can be JSON
	return text
}

// First returns the first byte of JSON that isn't white space; 0 if there is none.
func First(text []byte) byte {
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) > 0 {
		return text[0]
	}
	return 0
}

// present returns a value, or nil if it is null.
func present(value []byte) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

// same compares two JSON texts by their meaning.
func same(a, b []byte) bool {
	x, err := canon.Canonicalize(a, canon.Exact)
	y, otherErr := canon.Canonicalize(b, canon.Exact)
	return err == nil && otherErr == nil && bytes.Equal(x, y)
}
