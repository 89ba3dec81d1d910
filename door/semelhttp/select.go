package semelhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// KeyTemplate makes keys from the content of requests. The zero value is none.
type KeyTemplate struct {
	// Template is the text of a key, with fields in braces, such as
	// order:{cart_mandate_id}:{user_id}. A field whose name says that each delivery has
	// another value, such as a time of now or a nonce, is refused.
	Template string
	// Scope names the scope that keys are unique in, such as session, and ScopeField the
	// field whose value that is; it may be one of the template's or another. The scope is
	// part of the identity of a call, see [semel.Call]. Optional.
	Scope, ScopeField string
	// Values says where a request has the value of each field: header:NAME, query:NAME,
	// form:FIELD, json:/POINTER, hash:/POINTER for the SHA-256 of any value in a JSON
	// body, or cart:/POINTER for the hash of a list of items with variant, quantity and
	// price.
	Values map[string]string
}

// picks is what a route selects from requests and answers, parsed.
type picks struct {
	keys     []selector.Selector
	template *keytemplate.Template // nil: none
	scope    KeyTemplate
	values   []named
	compared *selector.Set       // nil: all of a body
	sequence []selector.Selector // of the number of the call: one, or none
	facts    []named             // attributes from the request
	answers  []named             // attributes from the answer
	form     bool                // something may be in a form
	json     bool                // something may be in JSON
	inBody   bool                // the key may be in the body
	// keyPlaces are the places in what is compared where the key is, if it was found there;
	// madePlaces those whose value is the key, if it was made by the template.
	keyPlaces, madePlaces []selector.Selector
}

// named is a selector for what has a name: a field or an attribute.
type named struct {
	name string
	selector.Selector
}

// ownKey reports whether the key isn't simply that of the header.
func (p *picks) ownKey() bool { return p != nil && (len(p.keys) > 0 || p.template != nil) }

// keyless reports whether fingerprints are made without the places where the key may be.
func (p *picks) keyless() bool { return p != nil && len(p.keyPlaces)+len(p.madePlaces) > 0 }

// parts are those of a JSON body that are compared; nil: all.
func (p *picks) parts() *selector.Set {
	if p == nil {
		return nil
	}
	return p.compared
}

// findPlaces finds out where in what is compared a key may be.
func (p *picks) findPlaces(rt *Route) {
	compared := func(s selector.Selector) bool {
		switch s.Source {
		case selector.Header:
			return slices.Contains(canonicalNames(rt.FingerprintHeaders), s.Name)
		case selector.Query:
			return true
		case selector.Form, selector.JSON:
			return rt.Body != BodyRaw
		}
		return false
	}
	for _, s := range p.keys {
		if compared(s) {
			p.keyPlaces = append(p.keyPlaces, s)
		}
	}
	if p.template == nil || len(p.values) != 1 || rt.KeyTemplate.Template != "{"+p.values[0].name+"}" {
		return // no value is the whole key
	}
	if s := p.values[0].Selector; compared(s) {
		p.madePlaces = append(p.madePlaces, s)
	}
}

// picks parses what the route selects; nil if that is nothing.
func (rt *Route) picks() (*picks, error) {
	if rt.KeyFrom == nil && rt.KeyTemplate.Template == "" && rt.FingerprintOnly == nil && rt.FingerprintIgnore == nil && len(rt.Attributes) == 0 && rt.Sequence == "" {
		return nil, nil
	}
	p := &picks{scope: rt.KeyTemplate}
	var errs []error
	bad := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	for _, text := range rt.KeyFrom {
		s, err := selector.Parse(text, selector.Keys)
		bad("KeyFrom", err)
		p.keys = append(p.keys, s)
		p.inBody = p.inBody || s.InBody()
	}
	if kt := &rt.KeyTemplate; kt.Template != "" {
		var err error
		p.template, err = keytemplate.New(kt.Template, kt.ScopeField)
		bad("KeyTemplate", err)
		if (kt.Scope == "") != (kt.ScopeField == "") {
			bad("KeyTemplate", errors.New("its Scope and ScopeField need each other"))
		}
		p.values = parseAll("KeyTemplate.Values", kt.Values, selector.Values, bad)
		if p.template != nil {
			p.checkFields(kt.Values, bad)
		}
		for _, v := range p.values {
			p.inBody = p.inBody || v.InBody()
		}
	}
	if len(rt.FingerprintOnly)+len(rt.FingerprintIgnore) > 0 && rt.Body != BodyAuto && rt.Body != BodyJSON {
		bad("FingerprintOnly and FingerprintIgnore", fmt.Errorf("they are about JSON, and Body is %s", rt.Body))
	}
	var err error
	p.compared, err = selector.ParseSet(rt.FingerprintOnly, rt.FingerprintIgnore)
	bad("FingerprintOnly and FingerprintIgnore", err)
	p.sequence, err = rt.parseSequence()
	bad("Sequence", err)
	if len(rt.Attributes) > store.MaxAttributes {
		bad("Attributes", fmt.Errorf("there are more than %d", store.MaxAttributes))
	}
	for _, a := range parseAll("Attributes", rt.Attributes, selector.Facts, bad) {
		if (store.Attributes{a.name: ""}).Validate() != nil || a.name == store.AttributeCommandID || a.name == store.AttributeCompensates || strings.ContainsAny(a.name, "= \t\r\n\"") {
			bad("Attributes", fmt.Errorf("%q can't be the name of one", a.name))
		}
		if a.Source == selector.Answer {
			p.answers = append(p.answers, a)
		} else {
			p.facts = append(p.facts, a)
		}
	}
	for _, s := range slices.Concat(p.keys, selectors(p.values), selectors(p.facts), p.sequence) {
		p.form, p.json = p.form || s.Source == selector.Form, p.json || s.InJSON()
	}
	p.findPlaces(rt)
	return p, errors.Join(errs...)
}

// parseAll parses selectors by name, in the order of the names.
func parseAll(field string, texts map[string]string, allowed []selector.Source, bad func(string, error)) (list []named) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s, err := selector.Parse(texts[name], allowed)
		bad(field+" "+name, err)
		list = append(list, named{name, s})
	}
	return list
}

func selectors(list []named) (all []selector.Selector) {
	for _, n := range list {
		all = append(all, n.Selector)
	}
	return all
}

// checkFields checks that each field has a value, and that none of them is one that each
// delivery has anew.
func (p *picks) checkFields(values map[string]string, bad func(string, error)) {
	fields := p.template.Fields()
	for _, name := range fields {
		if _, ok := values[name]; !ok {
			bad("KeyTemplate.Values", fmt.Errorf("there is none for {%s}", name))
		}
	}
	for _, v := range p.values {
		if !slices.Contains(fields, v.name) {
			bad("KeyTemplate.Values", fmt.Errorf("there is no field {%s}", v.name))
		}
		// What was stored with the intent may have any name in the request.
		last := v.Name[strings.LastIndexByte(v.Name, '/')+1:]
		if fault, found := keytemplate.LintName(last); found && !strings.HasPrefix(v.name, keytemplate.StoredPrefix) {
			bad("KeyTemplate.Values "+v.name, fmt.Errorf("%s: %s", v, fault.Message))
		}
	}
}

// picked is what was selected from one request.
type picked struct {
	key        string              // empty: none
	by         string              // the selector that found it, or the template
	scope      string              // of the key, such as session=s1
	places     []selector.Selector // where the key is, in what is compared
	attributes store.Attributes
	sequence   uint64 // zero: none
	unnumbered string // why it has no number where it needs one
}

// pick selects from a request that was read. A fault is a sentence for the caller about
// their key.
func (h *handler) pick(r *http.Request, pl *payload) (got picked, fault string, err error) {
	p := h.picks
	in := selector.Input{Header: r.Header, Query: r.URL.RawQuery}
	blind := "" // why the body can't be looked into
	if p.form || p.json {
		text, free, err := h.bytes(r, pl)
		defer free()
		if err != nil {
			return got, "", err
		}
		mode := pl.mode
		if h.route.Body == BodyRaw && !pl.opaque { // its type still says what it is
			mode = bodyMode(BodyAuto, r.Header)
		}
		blind = p.open(&in, text, mode)
	}
	got.attributes = p.find(&in, p.facts)
	got.sequence, got.unnumbered = p.number(&in)
	if !p.ownKey() {
		return got, "", nil
	}
	for _, s := range p.keys {
		key, fault := h.keyBy(s, &in)
		switch {
		case fault != "":
			return got, fault, nil
		case key == "" || key == got.key:
		case got.key != "":
			return got, fmt.Sprintf("The keys in %s and %s differ. Send one key.", got.by, s), nil
		default:
			got.key, got.by = key, s.String()
		}
	}
	if p.inBody && (blind == brokenJSON || blind != "" && got.key == "") {
		return got, "The key may be in the body, which " + blind + ".", nil
	}
	if got.places = p.keyPlaces; got.key != "" || p.template == nil {
		return got, "", nil
	}
	values := map[string]string{}
	for _, v := range p.values {
		value, found, err := v.Find(&in)
		if err != nil {
			return got, fmt.Sprintf("The key is made from %s, which %s.", v, err), nil
		}
		if !found {
			return got, "", nil
		}
		values[v.name] = value
	}
	if got.key, err = p.template.Fill(values); err != nil {
		return picked{}, "A value that the key is made from is too long.", nil
	}
	got.by, got.places = "template", p.madePlaces
	if p.scope.Scope != "" {
		got.scope = keytemplate.AppendScope("", p.scope.Scope, values[p.scope.ScopeField])
	}
	return got, "", nil
}

// brokenJSON is why a body can't be looked into although it says that it is JSON.
const brokenJSON = "isn't JSON, or has a name twice"

// open gives the input a body to look into, or says why that isn't possible.
func (p *picks) open(in *selector.Input, body []byte, mode BodyMode) (blind string) {
	switch {
	case len(body) == 0:
	case mode == BodyJSON && p.json:
		doc, err := canon.Canonicalize(body, canon.Exact)
		if err != nil {
			return brokenJSON
		}
		in.JSON = doc
	case mode == BodyForm && p.form:
		in.Form = body
	case mode != BodyJSON && mode != BodyForm:
		return "is of a type, or has a coding, in which it can't be looked for"
	}
	return ""
}

// keyBy is the key that one selector finds; empty if there is none.
func (h *handler) keyBy(s selector.Selector, in *selector.Input) (key, fault string) {
	profile := &h.route.Profile
	if s.Source == selector.Header {
		key, _, fault = requestKey(in.Header, s.Name, profile.MaxKey, profile.OpaqueKeys)
		return key, fault
	}
	key, _, err := s.Find(in)
	switch {
	case err != nil:
		return "", fmt.Sprintf("The key in %s %s.", s, err)
	case len(key) > profile.MaxKey:
		return "", fmt.Sprintf("The key in %s is longer than this service accepts.", s)
	case strings.ContainsFunc(key, func(c rune) bool { return c > '~' || !printable(byte(c)) }):
		return "", fmt.Sprintf("The key in %s has a character outside printable ASCII.", s)
	}
	return key, ""
}

// find is the attributes that are there. What can't be kept is left out: no call is refused
// for it.
func (p *picks) find(in *selector.Input, list []named) store.Attributes {
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

// learned is the attributes that the answer has.
func (c *capture) learned() store.Attributes {
	p := c.h.picks
	if p == nil || len(p.answers) == 0 || c.through || c.failed != nil {
		return nil
	}
	types := c.frozen.get("Content-Type")
	if len(types) != 1 || len(c.frozen.beyond(c.outer, "Content-Encoding")) > 0 || !isJSON(mediaOf(types[0])) {
		return nil
	}
	doc, err := canon.Canonicalize(c.out[c.bodyAt:], canon.Exact)
	if err != nil {
		return nil
	}
	return p.find(&selector.Input{JSON: doc}, p.answers)
}

// keyNotFound is what a caller is told whose request has no key where the route looks.
func (p *picks) keyNotFound() problem {
	var places []string
	for _, s := range p.keys {
		places = append(places, s.String())
	}
	if p.template != nil {
		for _, v := range p.values {
			places = append(places, v.String())
		}
		return because(CodeKeyMissing, "The key of this operation is made from the request, which lacks some of "+strings.Join(places, ", ")+". Nothing was executed.")
	}
	return because(CodeKeyMissing, "This operation needs a key, and the request has none in "+strings.Join(places, ", ")+". Nothing was executed.")
}

// call is the call that a request delivers, with nothing but its identity.
func (h *handler) call(r *http.Request, got picked, who Caller) semel.Call {
	scope := h.scope(r)
	if got.scope != "" && scope != "" {
		scope += "&"
	}
	call := semel.Call{Operation: h.operation, Key: got.key, Scope: keytemplate.FitScope(scope + got.scope), Door: Name}
	who.Name(&call, h.share)
	return call
}
