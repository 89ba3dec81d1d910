package extract

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/payload"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// Found is what a rule finds in one request.
type Found struct {
	Key        string         // empty: none
	By         string         // the selector that found it, or "template"
	Scope      string         // of the key, such as session=s1
	Places     payload.Places // where the compared parts hold the key
	Attributes store.Attributes
	Sequence   uint64 // zero: none
	// Fault says why the key is refused, and Invalid why the call is, such as that a required
	// number is missing: both are sentences for the caller.
	Fault, Invalid string
}

// brokenJSON is why a body that claims to be JSON can't be parsed.
const brokenJSON = "isn't JSON, or has a name twice"

// From examines a request that was read. The error comes from reading the body again.
func (p *Rule) From(r *http.Request, body *payload.Payload) (got Found, err error) {
	in := selector.Input{Header: r.Header, Query: r.URL.RawQuery}
	blind := "" // why the body can't be parsed
	if p.form || p.json {
		text, free, err := body.Bytes()
		defer free()
		if err != nil {
			return got, err
		}
		blind = p.open(&in, text, body.Kind())
	}
	if len(p.facts) > 0 {
		got.Attributes = find(&in, p.facts)
	}
	if p.sequence != nil {
		got.Sequence, got.Invalid = p.number(&in)
	}
	if p.forgetsID {
		for pointer := range jsonrpc.IDs(in.JSON) {
			if !p.compared.Has(pointer) {
				got.Invalid = "The body is a request of JSON-RPC, and this route doesn't compare the id at " + pointer + ", so that a repetition under another id would get an answer that its client doesn't know. Nothing was executed. Send it to a door for mcp or a2a, or have the route compare the id."
			}
		}
	}
	if p.Key() {
		p.key(&in, blind, &got)
	}
	return got, nil
}

// open gives the input a body to examine, or says why that isn't possible.
func (p *Rule) open(in *selector.Input, body []byte, kind payload.Mode) (blind string) {
	switch {
	case len(body) == 0:
	case kind == payload.JSON && p.json:
		doc, err := canon.Canonicalize(body, canon.Exact)
		if err != nil {
			return brokenJSON
		}
		in.JSON = doc
	case kind == payload.Form && p.form:
		in.Form = body
	case kind != payload.JSON && kind != payload.Form:
		return "is of a type, or has a coding, in which it can't be looked for"
	}
	return ""
}

// key finds the key, or makes it.
func (p *Rule) key(in *selector.Input, blind string, got *Found) {
	for _, s := range p.keys {
		key, fault := p.keyBy(s, in)
		switch {
		case fault != "":
			got.Fault = fault
			return
		case key == "" || key == got.Key:
		case got.Key != "":
			got.Fault = fmt.Sprintf("The keys in %s and %s differ. Send one key.", got.By, s)
			return
		default:
			got.Key, got.By = key, s.String()
		}
	}
	if p.inBody && (blind == brokenJSON || blind != "" && got.Key == "") {
		got.Fault = "The key may be in the body, which " + blind + "."
		return
	}
	if got.Places.Key = p.keyPlaces; got.Key == "" && p.template != nil {
		p.make(in, got)
	}
}

// keyBy returns the key that one selector finds; empty if there is none.
func (p *Rule) keyBy(s selector.Selector, in *selector.Input) (key, fault string) {
	if s.Source == selector.Header {
		key, _, fault = HeaderKey(in.Header, s.Name, p.maxKey, p.opaque)
		return key, fault
	}
	key, _, err := s.Find(in)
	switch {
	case err != nil:
		return "", fmt.Sprintf("The key in %s %s.", s, err)
	case len(key) > p.maxKey:
		return "", fmt.Sprintf("The key in %s is longer than this service accepts.", s)
	case strings.ContainsFunc(key, func(c rune) bool { return c > '~' || !printable(byte(c)) }):
		return "", fmt.Sprintf("The key in %s has a character outside printable ASCII.", s)
	}
	return key, ""
}

// make makes the key by the template, if all its values are there.
func (p *Rule) make(in *selector.Input, got *Found) {
	values := map[string]string{}
	for _, v := range p.values {
		value, found, err := v.Find(in)
		if err != nil {
			got.Fault = fmt.Sprintf("The key is made from %s, which %s.", v, err)
			return
		}
		if !found {
			return
		}
		values[v.name] = value
	}
	var err error
	if got.Key, err = p.template.Fill(values); err != nil {
		got.Fault = "A value that the key is made from is too long."
		return
	}
	got.By, got.Places = "template", p.made
	if p.scope != "" {
		got.Scope = keytemplate.AppendScope("", p.scope, values[p.field])
	}
}

// Missing tells a caller where the route looked for a key.
func (p *Rule) Missing() string {
	var places []string
	for _, s := range p.keys {
		places = append(places, s.String())
	}
	if p.template == nil {
		return "This operation needs a key, and the request has none in " + strings.Join(places, ", ") + ". Nothing was executed."
	}
	for _, v := range p.values {
		places = append(places, v.String())
	}
	return "The key of this operation is made from the request, which lacks some of " + strings.Join(places, ", ") + ". Nothing was executed."
}

// number returns the number of the call that a request delivers. A fault is a sentence for the
// caller.
func (p *Rule) number(in *selector.Input) (n uint64, fault string) {
	text, found, err := p.sequence[0].Find(in)
	if err == nil && !found {
		err = errors.New("is missing")
	}
	if err == nil {
		n, err = parseNumber(text)
	}
	if err != nil {
		return 0, fmt.Sprintf("The number of the call in %s %s. Nothing was executed.", p.sequence[0], err)
	}
	return n, ""
}

// parseNumber reads a number of a sequence. Each number has only one spelling, so that no two
// programs on the way can read it differently.
func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("is above 18446744073709551615")
	case err != nil, n == 0, strings.HasPrefix(text, "0"):
		return 0, errors.New("isn't a whole number from 1, written in digits without a sign or zeros before it")
	}
	return n, nil
}

// InAnswers reports whether answers have attributes.
func (p *Rule) InAnswers() bool { return len(p.answers) > 0 }

// FromAnswer finds the attributes in an answer's JSON.
func (p *Rule) FromAnswer(text []byte) store.Attributes {
	doc, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return nil
	}
	return find(&selector.Input{JSON: doc}, p.answers)
}

// find returns the attributes that are present and can be kept. Missing ones don't cause a
// refusal.
func find(in *selector.Input, list []named) store.Attributes {
	var found store.Attributes
	for _, a := range list {
		value, ok, err := a.Find(in)
		if !ok || err != nil || (store.Attributes{a.name: value}).Validate() != nil {
			continue
		}
		if found == nil {
			found = store.Attributes{}
		}
		found[a.name] = value
	}
	return found
}
