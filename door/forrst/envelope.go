package forrst

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// ProtocolVersion is the version of Forrst that this package speaks.
const ProtocolVersion = "0.1.0"

// maxID bounds the id of a request, in bytes.
const maxID = 255

// Request is a call to a function.
type Request struct {
	// ID names this delivery; its retries have others (FOR-ID.1).
	ID string
	// Function and Version say what runs. If the request names no version, it is the latest
	// stable one.
	Function, Version string
	// Arguments is a JSON object, as sent.
	Arguments json.RawMessage
	// Context is the propagated JSON object, as sent; nil if there is none. Nobody has verified
	// it.
	Context json.RawMessage
	// Extensions of the request, without idempotency.
	Extensions []Extension
	// Key is the idempotency key; empty if the request has none.
	Key string
	// Caller is the sender of the request.
	Caller semelhttp.Caller
	// Header is the header of the delivery that executes. It isn't recorded and may differ
	// between deliveries.
	Header http.Header

	canonical   []byte   // the arguments in the form for comparison
	asked       string   // the version in the request, which may be empty
	record      semel.ID // the call's record; zero before there is one
	idempotency *idempotency
}

// Extension is an extension in a request.
type Extension struct {
	URN string `json:"urn"`
	// Options is a JSON object; nil if there is none.
	Options json.RawMessage `json:"options,omitempty"`

	index int // in the request
}

// Bounds of an envelope. Anything beyond them is refused at once, because a request is read
// before its sender is known.
const (
	maxMembers    = 64 // of an object in the envelope
	maxExtensions = 32
)

// members splits a JSON object into its members, up to one more than maxMembers. Unlike a
// struct it distinguishes names by case.
func members(raw []byte) (map[string]json.RawMessage, bool) {
	if !isObject(raw) {
		return nil, false
	}
	m := map[string]json.RawMessage{}
	for name, value := range jsonscan.Members(raw) {
		if m[string(name)] = value; len(m) > maxMembers {
			break
		}
	}
	return m, true
}

// isObject reports whether valid JSON is an object.
func isObject(raw []byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

// text reads a JSON string.
func text(raw json.RawMessage) (string, bool) {
	s, is := jsonscan.Text(raw)
	return s, is && store.ValidText(s)
}

// strict checks that a body is strict JSON, and returns the canonical form of the arguments in it,
// or of none. It reads the body only once, because reading it again takes several times the memory.
func strict(body []byte) (arguments []byte, bad *canon.SyntaxError) {
	raw := jsonscan.At(body, "call", "arguments")
	if raw == nil {
		bad, _ = errors.AsType[*canon.SyntaxError](canon.Check(body, canon.Exact)) // its only error
		return []byte("{}"), bad
	}
	begin := jsonscan.Offset(body, raw)
	rest := append(append(append(make([]byte, 0, len(body)-len(raw)+1), body[:begin]...), '0'), body[begin+len(raw):]...)
	if bad, _ = errors.AsType[*canon.SyntaxError](canon.Check(rest, canon.Exact)); bad != nil {
		if bad.Offset > begin {
			bad.Offset += len(raw) - 1
		}
		return nil, bad
	}
	arguments, err := canon.Canonicalize(raw, canon.Exact)
	if bad, _ = errors.AsType[*canon.SyntaxError](err); bad != nil {
		bad.Offset += begin
	}
	return arguments, bad
}

// parse reads a request. It also returns the id with an error, once it has found it.
func parse(body []byte) (*Request, string, Errors) {
	canonical, bad := strict(body)
	if bad != nil {
		return nil, "", one(ParseError, &Source{Position: &bad.Offset}, "Invalid JSON: %s", bad.Msg)
	}
	top, ok := members(body)
	if !ok {
		if trimmed := bytes.TrimSpace(body); trimmed[0] == '[' {
			return nil, "", one(InvalidRequest, nil, "A request is one object; several in one array are not supported")
		}
		return nil, "", one(InvalidRequest, nil, "A request must be an object")
	}
	var errs Errors
	r := &Request{canonical: canonical}
	if !onlyMembers(&errs, top, nil, "protocol", "id", "call", "context", "extensions") {
		return nil, "", errs
	}
	parseProtocol(&errs, top["protocol"])
	id, ok := text(top["id"])
	switch {
	case top["id"] == nil:
		errs.add(InvalidRequest, At("id"), "The id is missing")
	case !ok || id == "" || len(id) > maxID:
		errs.add(InvalidRequest, At("id"), "The id must be a string of 1 to %d bytes", maxID)
		id = ""
	}
	r.ID = id
	r.parseCall(&errs, top["call"])
	if raw, given := top["context"]; given {
		if !isObject(raw) {
			errs.add(InvalidRequest, At("context"), "The context must be an object")
		}
		r.Context = raw
	}
	r.parseExtensions(&errs, top["extensions"])
	return r, id, errs
}

// onlyMembers refuses unknown names: otherwise a misspelled one would change what is executed.
// It returns false if there are too many to continue.
func onlyMembers(errs *Errors, m map[string]json.RawMessage, path []string, names ...string) bool {
	if len(m) > maxMembers {
		errs.add(InvalidRequest, At(path...), "It has more than %d members; there are %s", maxMembers, strings.Join(names, ", "))
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, name) {
			errs.add(InvalidRequest, At(append(slices.Clip(path), name)...), "There is no such member; there are %s", strings.Join(names, ", "))
		}
	}
	return true
}

func parseProtocol(errs *Errors, raw json.RawMessage) {
	m, ok := members(raw)
	if !ok {
		errs.add(InvalidRequest, At("protocol"), "The protocol must be an object with name and version")
		return
	}
	if name, ok := text(m["name"]); !ok || name != "forrst" {
		errs.add(InvalidRequest, At("protocol", "name"), "The name of the protocol must be forrst")
	}
	version, ok := text(m["version"])
	switch {
	case !ok:
		errs.add(InvalidRequest, At("protocol", "version"), "The version of the protocol must be a string")
	case version != ProtocolVersion:
		e := errs.add(InvalidProtocolVersion, At("protocol", "version"), "This version of the protocol is not supported")
		e.Details = map[string]any{"supported": []string{ProtocolVersion}}
	}
}

func (r *Request) parseCall(errs *Errors, raw json.RawMessage) {
	m, ok := members(raw)
	if !ok {
		errs.add(InvalidRequest, At("call"), "The call must be an object with function")
		return
	}
	if !onlyMembers(errs, m, []string{"call"}, "function", "version", "arguments") {
		return
	}
	if r.Function, ok = text(m["function"]); !ok || r.Function == "" {
		errs.add(InvalidRequest, At("call", "function"), "The function must be a string that isn't empty")
	}
	if raw, given := m["version"]; given {
		if r.asked, ok = text(raw); !ok || !validVersion(r.asked) {
			errs.add(InvalidRequest, At("call", "version"), "The version must be a semantic version such as 1.0.0")
		}
	}
	r.Arguments = json.RawMessage("{}")
	if raw, given := m["arguments"]; given {
		if !isObject(raw) {
			errs.add(InvalidRequest, At("call", "arguments"), "The arguments must be an object")
		}
		r.Arguments = raw
	}
}

// validVersion reports whether this is a semantic version without build metadata, which doesn't
// distinguish versions.
func validVersion(v string) bool { return v != "" && semver.Canonical("v"+v) == "v"+v }

func (r *Request) parseExtensions(errs *Errors, raw json.RawMessage) {
	if raw == nil {
		return
	}
	if raw[0] != '[' {
		errs.add(InvalidRequest, At("extensions"), "The extensions must be an array of objects with urn and options")
		return
	}
	var list []json.RawMessage
	for item := range jsonscan.Items(raw) {
		if list = append(list, item); len(list) > maxExtensions {
			errs.add(InvalidRequest, At("extensions"), "There are more than %d extensions", maxExtensions)
			return
		}
	}
	for i, raw := range list {
		at := []string{"extensions", strconv.Itoa(i)}
		m, ok := members(raw)
		if !ok {
			errs.add(InvalidRequest, At(at...), "An extension must be an object with urn")
			continue
		}
		if !onlyMembers(errs, m, at, "urn", "options") {
			continue
		}
		ext := Extension{Options: m["options"], index: i}
		if ext.URN, ok = text(m["urn"]); !ok || !strings.HasPrefix(ext.URN, "urn:") {
			errs.add(InvalidRequest, At(append(at, "urn")...), "The urn of an extension must be a string such as urn:forrst:ext:idempotency")
			continue
		}
		if ext.Options != nil && !isObject(ext.Options) {
			errs.add(InvalidRequest, At(append(at, "options")...), "The options of an extension must be an object")
			continue
		}
		if shortName(ext.URN) != "idempotency" {
			r.Extensions = append(r.Extensions, ext)
			continue
		}
		if r.idempotency != nil {
			errs.add(InvalidRequest, At(at...), "The idempotency extension is there twice")
			continue
		}
		r.idempotency = &idempotency{Extension: ext}
	}
}

// shortName returns the name of one of Forrst's own extensions, from either spelling of its
// URN; it is empty for others.
func shortName(urn string) string {
	for _, prefix := range []string{"urn:forrst:ext:", "urn:cline:forrst:ext:"} {
		if name, ok := strings.CutPrefix(urn, prefix); ok && !strings.Contains(name, ":") {
			return name
		}
	}
	return ""
}
