package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Event is one thing that happened, of which a delivery may have several.
type Event struct {
	// ID is the same in all deliveries and tries of the event, and no other event has
	// it: deduplicate by it. It is empty before the event is taken.
	ID string
	// Tenant is whose event it is, and Source the name of its source.
	Tenant, Source string
	// Key names the event, as webhook:SOURCE:ID, and Scope within what.
	Key, Scope string
	// Type is the kind of event, such as "orders/create".
	Type string
	// ReceivedAt is when the delivery came that was taken.
	ReceivedAt time.Time
	// Header has Content-Type and the headers that the source names. The signature may
	// not cover them.
	Header http.Header
	// Body is the event as it came: the body of the delivery, or its part of a batch.
	Body []byte
	// Payment is what the event means to its payment; nil if it is about none, or nobody
	// asked.
	Payment *Payment

	print semel.Fingerprint
	fault string // why it has no identity of its own
	view  *view
}

// events splits a delivery. An event in a batch whose id can't be found is identified by
// its content: it is taken, so that it holds up no other, and handlers don't get it.
func (v *Verifier) events(d *Delivery) ([]Event, error) {
	s := v.source
	header := s.passed(d.Header)
	var list []Event
	for i := range s.rules {
		r := &s.rules[i]
		found := []found{{node: &node{raw: d.Body}}}
		body := found[0].node
		if r.each != nil {
			if !json.Valid(d.Body) {
				return nil, refusal(CodeUnreadable, "the body is not JSON")
			}
			found = collect(body, r.each, nil)
		}
		for _, at := range found {
			e := Event{Source: s.Name, Header: header, Body: at.node.raw}
			e.view = v.view(d)
			e.view.body, e.view.items = body, at.items
			v.identify(&e, r)
			if e.fault != "" && r.each == nil {
				return nil, refusal(CodeUnidentified, "%s", e.fault)
			}
			list = append(list, e)
		}
	}
	return list, nil
}

// found is a value with the items of the lists on the way to it.
type found struct {
	node  *node
	items []int
}

// collect follows a path into every item of its lists.
func collect(n *node, path []step, items []int) []found {
	for i, s := range path {
		if n = n.member(s.name); n == nil {
			return nil
		}
		if s.each {
			var all []found
			for k, item := range n.list() {
				all = append(all, collect(item, path[i+1:], append(items[:len(items):len(items)], k))...)
			}
			return all
		}
	}
	return []found{{n, items}}
}

// identify finds the identity and the kind of an event.
func (v *Verifier) identify(e *Event, r *rule) {
	e.print = fingerprint(without(e.Body, r.ignore))
	e.view.digest = digestOf(e.print)
	id, err := e.view.fillAll(r.id)
	var scope []string
	if err == nil {
		scope, err = e.view.fillAll(r.scope)
	}
	if err == nil && v.source.perEvent() && strings.Contains(strings.Join(id, ""), ":") {
		// Signed fields stand between colons, so one in a field could be moved.
		err = errors.New("the id of the event has a colon")
	}
	e.Type, _ = e.view.fill(r.kind) // without one the handler finds out by itself
	e.Payment = v.source.paymentOf(e)
	if err != nil {
		e.fault = err.Error()
		id, scope = []string{"unreadable", digestOf(semel.FingerprintOf(semel.SchemeRaw, e.Body))}, nil
	}
	e.Key = "webhook:" + v.source.Name + ":" + join(id, store.MaxKeyLen/4)
	e.Scope = join(scope, store.MaxScopeLen)
}

// digestOf is the digest of a fingerprint in hexadecimal.
func digestOf(p semel.Fingerprint) string {
	_, sum, _ := strings.Cut(p.String(), ":")
	return sum
}

// join writes parts with colons between them, so that other parts never give the same
// text. What is longer than limit bytes, or can't be stored, is replaced by its digest.
func join(parts []string, limit int) string {
	escape := strings.NewReplacer("%", "%25", ":", "%3A")
	var escaped []string
	for _, p := range parts {
		escaped = append(escaped, escape.Replace(p))
	}
	text := strings.Join(escaped, ":")
	if len(text) <= limit && store.ValidText(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// without is a JSON object without what may differ between deliveries of one event.
func without(body []byte, ignore [][]step) []byte {
	if len(ignore) == 0 {
		return body
	}
	if _, err := semel.FingerprintJSON(body); err != nil {
		return body // with a name that comes twice, say, it would lose more than is ignored
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var object map[string]any
	if dec.Decode(&object) != nil {
		return body
	}
	for _, path := range ignore {
		at := object
		for _, s := range path[:len(path)-1] {
			at, _ = at[s.name].(map[string]any)
		}
		delete(at, path[len(path)-1].name)
	}
	if kept, err := json.Marshal(object); err == nil {
		return kept
	}
	return body
}

// passed are the headers that a handler gets.
func (s *Source) passed(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		for _, want := range append([]string{"Content-Type"}, s.Headers...) {
			prefix, wild := strings.CutSuffix(want, "*")
			if strings.EqualFold(name, want) || wild && len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				out[name] = values
			}
		}
	}
	return out
}
