package webhook

import (
	"fmt"
	"hash/crc32"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A place is the position of a value in a delivery.
type place struct {
	kind     string // header, query, body, json, form, field, signature, url, endpoint, crc32 or digest
	name     string // of a header, a parameter, a field or a signature's entry
	path     []step
	optional bool // a missing value counts as empty
	text     string
}

// step leads from a JSON value to one of its parts: by name, if it has one, and then, if each
// is set, to an item of that list.
type step struct {
	name string
	each bool
}

// template is text with places in braces.
type template []segment

type segment struct {
	literal string
	place   *place
}

// parseTemplate parses templates such as "{signature:t}.{body}".
func parseTemplate(text string) (template, error) {
	var t template
	for rest := text; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if literal != "" {
			t = append(t, segment{literal: literal})
		}
		if !found {
			break
		}
		inner, tail, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("%q has a brace that is not closed", text)
		}
		p, err := parsePlace(inner)
		if err != nil {
			return nil, err
		}
		t, rest = append(t, segment{place: p}), tail
	}
	return t, nil
}

func parsePlace(text string) (*place, error) {
	inner, optional := strings.CutSuffix(text, "?")
	p := &place{optional: optional, text: text}
	kind, name, named := strings.Cut(inner, ":")
	p.kind, p.name = kind, name
	switch {
	case kind == "header" && name != "":
		p.name = textproto.CanonicalMIMEHeaderKey(name)
	case (kind == "signature" || kind == "query") && name != "", kind == "url" && name == "decoded":
	case kind == "form" && name != "":
		p.kind = "field"
	case kind == "body" && name != "":
		path, err := parsePath(name)
		p.kind, p.path = "json", path
		return p, err
	case slices.Contains([]string{"body", "form", "url", "endpoint", "crc32", "digest"}, kind) && !named:
	default:
		return nil, fmt.Errorf("{%s} is not a place: write {header:NAME}, {query:NAME}, {body}, {body:PATH}, {form}, {form:NAME}, {signature:LABEL}, {url}, {endpoint}, {crc32} or {digest}", text)
	}
	return p, nil
}

// parsePath parses paths such as "entry[].changes[].value", or "[].id" in a body that is a list.
func parsePath(text string) ([]step, error) {
	var path []step
	for name := range strings.SplitSeq(text, ".") {
		name, each := strings.CutSuffix(name, "[]")
		if name == "" && (!each || len(path) > 0) || strings.ContainsAny(name, "[]{}") {
			return nil, fmt.Errorf("%q is not a path: write names with full stops between them, and [] behind a list", text)
		}
		path = append(path, step{name, each})
	}
	return path, nil
}

// sharesLists reports whether each also goes through every list on the path, so that [] means
// the current item.
func sharesLists(path, each []step) bool {
	last := -1
	for i, s := range path {
		if s.each {
			last = i
		}
	}
	return last < len(each) && slices.Equal(path[:last+1], each[:last+1])
}

// view is where to look up places: a delivery, and an event in it.
type view struct {
	delivery *Delivery
	body     *node
	labels   map[string]string // of the signature
	url      string
	endpoint string
	hashed   bool    // the address includes the digest of the body
	items    []*node // the item of each list on the path to the event
	digest   string
}

// value returns the value at a place.
func (v *view) value(p *place) (text string, err error) {
	switch p.kind {
	case "header":
		text, err = single(v.delivery.Header.Values(p.name), "header", p.name)
	case "query":
		var q url.Values
		if q, err = url.ParseQuery(v.delivery.Query); err == nil {
			text, err = single(q[p.name], "parameter", p.name)
		}
	case "field":
		var form url.Values
		if form, err = v.form(); err == nil {
			text, err = single(form[p.name], "field", p.name)
		}
	case "form":
		return v.sorted()
	case "body":
		return string(v.delivery.signed()), nil
	case "crc32":
		text = strconv.FormatUint(uint64(crc32.ChecksumIEEE(v.delivery.signed())), 10)
	case "json":
		text = v.at(p.path).text()
	case "signature":
		text = v.labels[p.name]
	case "url":
		if text = v.url; p.name == "decoded" {
			text = decodedURL.Replace(text)
		}
	case "endpoint":
		text = v.endpoint
	case "digest":
		text = v.digest
	}
	if err != nil {
		return "", err
	}
	if text == "" && !p.optional {
		return "", &missing{p}
	}
	return text, nil
}

// single returns the only value that something may have.
func single(values []string, what, name string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("the %s %s comes %d times", what, name, len(values))
	}
	return strings.Join(values, ""), nil
}

// missing says that a place has no value.
type missing struct{ place *place }

func (e *missing) Error() string {
	p := e.place
	if p.kind == "json" {
		return "the body has no " + strings.TrimSuffix(strings.TrimPrefix(p.text, "body:"), "?")
	}
	if text := absent[p.kind]; text != "" {
		return fmt.Sprintf(text, p.name)
	}
	return "there is no " + p.kind
}

var absent = map[string]string{
	"header": "the header %s is missing", "signature": "the signature has no %s", "query": "the address has no parameter %s", "field": "the form has no %s",
}

// at follows a path, through its lists to the items of this event.
func (v *view) at(path []step) *node {
	n, lists := v.body, 0
	for i := len(path) - 1; i >= 0; i-- {
		if !path[i].each {
			continue
		}
		for _, s := range path[:i+1] {
			if s.each {
				lists++
			}
		}
		if lists > len(v.items) {
			return nil
		}
		n, path = v.items[lists-1], path[i+1:]
		break
	}
	for _, s := range path {
		n = n.member(s.name)
	}
	return n
}

// fill returns the text of a template with the values of its places.
func (v *view) fill(t template) (string, error) {
	b, err := v.bytes(t)
	return string(b), err
}

// bytes is fill for the signed bytes, which are often the whole body.
func (v *view) bytes(t template) ([]byte, error) {
	if len(t) == 1 && t[0].place != nil && t[0].place.kind == "body" {
		return v.delivery.signed(), nil
	}
	size := 0
	if uses([]template{t}, "body") {
		size = len(v.delivery.signed())
	}
	b := make([]byte, 0, size+256)
	for _, s := range t {
		switch {
		case s.place == nil:
			b = append(b, s.literal...)
		case s.place.kind == "body":
			b = append(b, v.delivery.signed()...)
		default:
			text, err := v.value(s.place)
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
		}
	}
	return b, nil
}

// fillAll fills a list of templates.
func (v *view) fillAll(list []template) ([]string, error) {
	var values []string
	for _, t := range list {
		text, err := v.fill(t)
		if err != nil {
			return nil, err
		}
		values = append(values, text)
	}
	return values, nil
}
