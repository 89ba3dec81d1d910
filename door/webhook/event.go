package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// Event is one thing that happened. A delivery may have several.
type Event struct {
	// ID is the same in all deliveries and tries of the event, and unique to it: deduplicate by
	// it. It is empty before the event is accepted.
	ID string
	// Tenant owns the event, and Source is the name of its source.
	Tenant, Source string
	// Key names the event, as webhook:SOURCE:ID, within Scope.
	Key, Scope string
	// Type is the kind of event, such as "orders/create".
	Type string
	// ReceivedAt is when the accepted delivery came.
	ReceivedAt time.Time
	// Header has Content-Type and the headers that the source names, which may be unsigned.
	Header http.Header
	// Body is the event as received: the body of the delivery, or its part of a batch.
	Body []byte
	// Payment says what the event means to its payment; nil if nobody asked, or if it has none.
	Payment *Payment

	print   semel.Fingerprint
	former  []semel.Fingerprint // made by earlier versions for this event
	apart   string              // tells it apart from another event with the same id and other content
	name    string              // the sender's own id; empty if it has none, or it can't be stored
	mistake string              // why it has no identity of its own
	view    *view

	request http.Header // headers of the whole delivery
	status  int         // status of its answer, if known already
}

// Attribute is a value that an event's record keeps, so that people can find it. Of several
// with the same name the first that is present counts. Missing ones are left out.
type Attribute struct {
	// Name of the attribute, such as order.
	Name string `json:"name" required:"true"`
	// Where to find the value: json:/POINTER or form:FIELD of the event, or header:NAME of a header that handlers get.
	From string `json:"from" required:"true"`
	// Kinds of events that have it, such as orders/create. One that ends in * stands for all with that prefix. Defaults to all.
	Kinds []string `json:"kinds,omitempty" single:"true"`
}

// Bounds of a delivery, which the receiver reads before it knows the sender.
const (
	// maxSigned bounds events that have signatures of their own: senders send a handful.
	maxSigned = 100
	// maxEvents bounds the events of other sources: WhatsApp sends the most, up to 1,000.
	maxEvents = 1000
	// maxVisited is how many items of lists the receiver looks at to find them.
	maxVisited = 4 * maxEvents
)

// events splits a delivery. An event in a batch without an id is identified by its content: it
// is accepted, so that it doesn't hold up the others, but handlers don't get it.
func (v *Verifier) events(d *Delivery) ([]Event, error) {
	s := v.source
	header := s.passed(d.Header)
	whole := v.view(d)
	body := whole.body
	most := maxEvents
	if s.perEvent() {
		most = maxSigned
	}
	var list []Event
	within := map[*node]bool{} // items that had events
	for i := range s.rules {
		r := &s.rules[i]
		all := []found{{node: &node{raw: d.Body}}}
		if r.each != nil {
			if body.raw == nil {
				return nil, inbox.Refuse(CodeUnreadable, "the body is not JSON")
			}
			c := collector{most: most}
			if all = c.collect(body, r.each, nil); c.visited > maxVisited || len(all) > most {
				return nil, inbox.Refuse(inbox.CodeTooLong, "a delivery may have up to %d events", most)
			}
		}
		for _, at := range all {
			if s.Events[i].Rest && within[at.node] {
				continue
			}
			for _, item := range at.items {
				within[item] = true
			}
			e := Event{Source: s.Name, Header: header, Body: at.node.raw}
			one := *whole
			e.view, one.items = &one, at.items
			if s.perEvent() {
				// An unsigned event costs no more than this check, and the ones after it
				// nothing.
				if err := v.verify(e.view); err != nil {
					return nil, err
				}
			}
			v.identify(&e, r)
			if e.mistake != "" && r.each == nil {
				return nil, inbox.Refuse(CodeUnidentified, "%s", e.mistake)
			}
			if list = append(list, e); len(list) > most {
				return nil, inbox.Refuse(inbox.CodeTooLong, "a delivery may have up to %d events", most)
			}
		}
	}
	return list, nil
}

// found is a value, with the items of the lists on its path.
type found struct {
	node  *node
	items []*node
	index []int // the index of each item in its list
}

// collector follows a path into every item of its lists, until there are too many.
type collector struct {
	most, visited int
	index         []int
}

func (c *collector) collect(n *node, path []step, items []*node) []found {
	for i, s := range path {
		if s.name != "" {
			n = n.member(s.name)
		}
		if n == nil {
			return nil
		}
		if s.each {
			var all []found
			for k, item := range n.list() {
				if c.visited++; c.visited > maxVisited || len(all) > c.most {
					break
				}
				c.index = append(c.index, k)
				all = append(all, c.collect(item, path[i+1:], append(items[:len(items):len(items)], item))...)
				c.index = c.index[:len(c.index)-1]
			}
			return all
		}
	}
	return []found{{n, items, slices.Clone(c.index)}}
}

// identify finds the identity and the kind of an event.
func (v *Verifier) identify(e *Event, r *rule) {
	e.print = printOf(e.Body, r.ignore)
	e.view.digest = digestOf(e.print)
	id, err := e.view.fillAll(r.id)
	if _, none := errors.AsType[*missing](err); none && len(r.fallback) > 0 {
		id, err = e.view.fillAll(r.fallback)
	}
	var scope []string
	if err == nil {
		scope, err = e.view.fillAll(r.scope)
	}
	e.Type, _ = e.view.fill(r.kind) // without a kind, handlers find out for themselves
	if r.looseKind {
		// Anybody who has a delivery could use up its id under another kind, and the sender's
		// own delivery would be a duplicate.
		e.print, e.former = withKind(e.print, e.Type)
	}
	e.Payment = v.source.paymentOf(e)
	if err != nil {
		e.mistake = err.Error()
		id, scope = []string{"unreadable", digestOf(semel.FingerprintOf(semel.SchemeRaw, e.Body))}, nil
	} else if apart, err := e.view.fillAll(r.apart); err == nil && strings.Join(apart, "") != "" {
		e.apart = join(apart, store.MaxKeyLen/8)
	}
	if name := strings.Join(id, ":"); err == nil && len(name) <= maxName && store.ValidText(name) {
		e.name = name
	}
	e.Key = "webhook:" + v.source.Name + ":" + join(id, store.MaxKeyLen/4)
	e.Scope = join(scope, store.MaxScopeLen)
}

// maxName bounds the sender's id, which records keep as an attribute.
const maxName = 1 << 10

// digestOf returns the digest of a fingerprint in hexadecimal.
func digestOf(p semel.Fingerprint) string {
	_, sum, _ := strings.Cut(p.String(), ":")
	return sum
}

// join writes parts with colons between them, so that other parts never give the same text. It
// replaces a text of more than limit bytes, or one that can't be stored, by a digest.
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

// printOf digests the content of an event, without the parts that may differ between its deliveries.
func printOf(body []byte, ignore [][]string) semel.Fingerprint {
	kept := body
	for _, path := range ignore {
		kept = jsonscan.Without(kept, path...)
	}
	if p, err := semel.FingerprintJSON(kept); err == nil {
		return p
	}
	return semel.FingerprintOf(semel.SchemeRaw, body) // all of the body: it may be ambiguous
}

// withKind adds the kind of an event to the digest of its content. Records of earlier versions
// have the digest of the content alone, or this one under the content's scheme.
func withKind(content semel.Fingerprint, kind string) (print semel.Fingerprint, former []semel.Fingerprint) {
	both := semel.FingerprintOf(semel.SchemeJSON, []byte(content.String()), []byte(kind))
	b, _ := both.AppendBinary(nil) // its form is fixed: its scheme and its digest
	return store.NewFingerprint(store.SchemeEvent, [sha256.Size]byte(b[1:])), []semel.Fingerprint{content, both}
}

// passed returns the headers that a handler gets. A token isn't among them: it is a secret, and
// the store keeps these headers.
func (s *Source) passed(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		if s.Signature.Algorithm == "token" && name == s.key.name {
			continue
		}
		for _, want := range append([]string{"Content-Type"}, s.Headers...) {
			prefix, wild := strings.CutSuffix(want, "*")
			if strings.EqualFold(name, want) || wild && len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				out[name] = values
			}
		}
	}
	return out
}
