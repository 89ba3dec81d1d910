// Package extract finds everything in a request that names and describes its call: the key, its
// scope, the number in a sequence and the attributes.
package extract

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/payload"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// Spec says where to look, as declared by a route. Empty members look for nothing.
type Spec struct {
	Keys       []string // selectors; the first one that finds a key counts
	Template   Template // makes the key if no selector finds one
	MaxKey     int
	Opaque     bool              // a key in a header may be any text
	Attributes map[string]string // selectors by name
	Sequence   string            // the selector for the number
	// Mode, Headers, Only and Ignore say which parts of a request to compare.
	Mode         payload.Mode
	Headers      []string
	Only, Ignore []string
}

// Template makes keys from the content of requests; see semelhttp.KeyTemplate.
type Template struct {
	Template          string
	Scope, ScopeField string
	Values            map[string]string
}

// Rule is a parsed [Spec].
type Rule struct {
	maxKey    int
	opaque    bool
	keys      []selector.Selector
	template  *keytemplate.Template // nil: none
	scope     string                // the scope of the template's keys
	field     string                // the field that has its value
	values    []named
	sequence  []selector.Selector // one, or none
	facts     []named             // attributes from the request
	answers   []named             // attributes from the answer
	compared  *selector.Set       // nil: all of a body
	forgetsID bool                // they may lack the id of a request of JSON-RPC
	raw       bool                // bodies are compared byte for byte
	form      bool                // a form may have something
	json      bool                // JSON may have something
	inBody    bool                // the key may be in the body
	keyPlaces []selector.Selector // compared places that hold the key if a selector found it
	made      payload.Places      // the same if the template made it
}

// named is a selector with the name of a field or an attribute.
type named struct {
	name string
	selector.Selector
}

// New parses a spec. The error lists everything that is wrong with it, one per line.
func New(spec Spec) (*Rule, error) {
	p := &Rule{maxKey: spec.MaxKey, opaque: spec.Opaque, raw: spec.Mode == payload.Raw}
	var errs []error
	bad := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	for _, text := range spec.Keys {
		s, err := selector.Parse(text, selector.Keys)
		bad("KeyFrom", err)
		p.keys = append(p.keys, s)
		p.inBody = p.inBody || s.InBody()
	}
	if spec.Template.Template != "" {
		p.parseTemplate(&spec.Template, bad)
	}
	const compared = "FingerprintOnly and FingerprintIgnore"
	if len(spec.Only)+len(spec.Ignore) > 0 {
		if spec.Mode != payload.Auto && spec.Mode != payload.JSON {
			bad(compared, fmt.Errorf("they are about JSON, and Body is %s", spec.Mode))
		}
		var err error
		p.compared, err = selector.ParseSet(spec.Only, spec.Ignore)
		bad(compared, err)
		p.forgetsID = !p.compared.Has("/id") || p.compared.InList()
		p.json = p.forgetsID
	}
	if spec.Sequence != "" {
		s, err := selector.Parse(spec.Sequence, selector.Keys)
		bad("Sequence", err)
		p.sequence = []selector.Selector{s}
	}
	if len(spec.Attributes) > 0 {
		p.parseAttributes(spec.Attributes, bad)
	}
	all := slices.Concat(p.keys, selectors(p.values), selectors(p.facts), p.sequence)
	for _, s := range all {
		p.form, p.json = p.form || s.Source == selector.Form, p.json || s.InJSON()
	}
	if p.compared != nil && !p.compared.Has("/id") && namesRPC(spec, all) {
		bad(compared, errors.New(forgotten))
	}
	if p.Key() {
		p.findPlaces(&spec)
	}
	return p, errors.Join(errs...)
}

// forgotten is why a rule doesn't fit JSON-RPC.
const forgotten = "they leave out the id of JSON-RPC, so a duplicate would get the answer to another id, which its client doesn't know: compare /id, or use a door that answers each request under its own id, mcp for tools or a2a for agents"

// namesRPC reports whether a route is for JSON-RPC, as far as that shows: it names two of the
// members that requests have.
func namesRPC(spec Spec, all []selector.Selector) bool {
	pointers, named := slices.Concat(spec.Only, spec.Ignore), map[string]bool{}
	for _, s := range all {
		if _, pointer, _ := strings.Cut(s.String(), ":"); s.InJSON() {
			pointers = append(pointers, pointer)
		}
	}
	for _, pointer := range pointers {
		first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		named[first] = true
	}
	n := 0
	for _, member := range []string{"jsonrpc", "id", "method", "params"} {
		if named[member] {
			n++
		}
	}
	return n >= 2
}

func (p *Rule) parseTemplate(t *Template, bad func(string, error)) {
	var err error
	p.template, err = keytemplate.New(t.Template, t.ScopeField)
	bad("KeyTemplate", err)
	if (t.Scope == "") != (t.ScopeField == "") {
		bad("KeyTemplate", errors.New("its Scope and ScopeField need each other"))
	}
	p.scope, p.field = t.Scope, t.ScopeField
	p.values = parseAll("KeyTemplate.Values", t.Values, selector.Values, bad)
	if p.template != nil {
		p.checkFields(t.Values, bad)
	}
	for _, v := range p.values {
		p.inBody = p.inBody || v.InBody()
	}
}

// checkFields checks that each field has a value, and that none of them differs in each
// delivery.
func (p *Rule) checkFields(values map[string]string, bad func(string, error)) {
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
		// A value stored with the intent may have any name in the request.
		last := v.Name[strings.LastIndexByte(v.Name, '/')+1:]
		if fault, found := keytemplate.LintName(last); found && !strings.HasPrefix(v.name, keytemplate.StoredPrefix) {
			bad("KeyTemplate.Values "+v.name, fmt.Errorf("%s: %s", v, fault.Message))
		}
	}
}

func (p *Rule) parseAttributes(texts map[string]string, bad func(string, error)) {
	if len(texts) > store.MaxAttributes {
		bad("Attributes", fmt.Errorf("there are more than %d", store.MaxAttributes))
	}
	for _, a := range parseAll("Attributes", texts, selector.Facts, bad) {
		if badName(a.name) {
			bad("Attributes", fmt.Errorf("%q can't be the name of one", a.name))
		}
		if a.Source == selector.Answer {
			p.answers = append(p.answers, a)
		} else {
			p.facts = append(p.facts, a)
		}
	}
}

// badName reports whether the name is invalid for an attribute, or used for something else.
func badName(name string) bool {
	return (store.Attributes{name: ""}).Validate() != nil || name == store.AttributeCommandID || name == store.AttributeCompensates || strings.ContainsAny(name, "= \t\r\n\"")
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

// findPlaces finds the compared places that may hold the key.
func (p *Rule) findPlaces(spec *Spec) {
	compared := func(s selector.Selector) bool {
		switch s.Source {
		case selector.Header:
			return slices.Contains(spec.Headers, s.Name)
		case selector.Query:
			return true
		case selector.Form, selector.JSON:
			return !p.raw
		}
		return false
	}
	for _, s := range p.keys {
		if compared(s) {
			p.keyPlaces = append(p.keyPlaces, s)
		}
	}
	if len(p.values) == 1 && spec.Template.Template == "{"+p.values[0].name+"}" && compared(p.values[0].Selector) {
		p.made.Key = selectors(p.values) // this value is the whole key
		return
	}
	for _, v := range p.values {
		// The digest of hash: and the text of a pair distinguish exactly what the comparison does.
		if !p.raw && (v.Source == selector.JSON || v.Source == selector.Cart) {
			p.made.Made = append(p.made.Made, v.Selector)
		}
	}
}

// Key reports whether the rule finds or makes the key. Otherwise the key is in a header that
// others read.
func (p *Rule) Key() bool { return len(p.keys) > 0 || p.template != nil }

// KeyInBody reports whether the key may be in the body.
func (p *Rule) KeyInBody() bool { return p.inBody }

// MayHaveKey reports whether a request has a key, valid or not, or may have one in its body.
func (p *Rule) MayHaveKey(r *http.Request) bool {
	return p.inBody || p.template != nil || slices.ContainsFunc(p.keys, func(s selector.Selector) bool {
		_, found, err := s.Find(&selector.Input{Header: r.Header, Query: r.URL.RawQuery})
		return found || err != nil
	})
}

// Keyless reports whether fingerprints leave out the places where the key may be.
func (p *Rule) Keyless() bool { return len(p.keyPlaces)+len(p.made.Key) > 0 }

// Compared returns the parts of a JSON body to compare; nil: all.
func (p *Rule) Compared() *selector.Set { return p.compared }

// Headers lists the request headers that the rule needs; attributes may be absent.
func (p *Rule) Headers() (names []string) {
	for _, s := range slices.Concat(p.keys, selectors(p.values), p.sequence) {
		if s.Source == selector.Header {
			names = append(names, s.Name)
		}
	}
	return names
}
