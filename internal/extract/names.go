package extract

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// Attribute is a value that items of some kinds have; see webhook.Attribute.
type Attribute struct {
	Name, From string
	Kinds      []string // a name that ends in * stands for all with that prefix; none: all kinds
}

// fits reports whether items of a kind have the value.
func (a *Attribute) fits(kind string) bool {
	return len(a.Kinds) == 0 || slices.ContainsFunc(a.Kinds, func(k string) bool {
		prefix, wild := strings.CutSuffix(k, "*")
		return k == kind || wild && strings.HasPrefix(kind, prefix)
	})
}

// place is a door that takes items other than a route's requests.
type place struct {
	sources []selector.Source // of an item
	own     []string          // attributes that the door writes itself
}

// places are the doors by name. A json: selector points into the item: the event, the activity,
// A2A's message, the arguments of a tool, a function or a command.
var places = map[string]place{
	"webhook":     {[]selector.Source{selector.Header, selector.JSON, selector.Form}, []string{store.AttributeEventID, store.AttributePayment, "apart"}},
	"activitypub": {[]selector.Source{selector.JSON}, []string{"type", "actor", "signed"}},
	"a2a":         {[]selector.Source{selector.Header, selector.JSON}, []string{store.AttributeRequestID}},
	"mcp":         {[]selector.Source{selector.Header, selector.JSON}, []string{"tool"}},
	"forrst":      {[]selector.Source{selector.Header, selector.JSON}, []string{store.AttributeRequestID, "arguments_hash"}},
	"ids": {[]selector.Source{selector.JSON}, []string{
		store.AttributeCommandID, store.AttributeCorrelationID, "idempotency_key", "actor_id", "effective_actor_id", "command_kind", "trace.message_id", "trace.phone_number_id",
	}},
}

// Names finds attributes in the items of a door, like a [Rule] in the requests of a route. A
// nil one finds none. It never changes.
type Names struct {
	list   []Attribute
	parsed []named // in the same order; if two are found, the later counts
	inBody bool
}

// NewNames parses a door's configured attributes, and the usual ones of the sender. The first
// value that an item has counts; a configured attribute replaces a usual one with the same
// name. The error lists every mistake, one per line.
func NewNames(door string, configured map[string]string, usual ...Attribute) (*Names, error) {
	at, n := places[door], &Names{}
	for _, a := range slices.Backward(usual) {
		if _, there := configured[a.Name]; !there {
			n.list = append(n.list, a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		n.list = append(n.list, Attribute{Name: name, From: configured[name]})
	}
	var errs []error
	different := map[string]bool{}
	for _, a := range n.list {
		s, err := selector.Parse(a.From, at.sources)
		switch {
		case badName(a.Name):
			errs = append(errs, fmt.Errorf("%q can't be the name of an attribute", a.Name))
		case slices.Contains(at.own, a.Name):
			errs = append(errs, fmt.Errorf("the attribute %s has another meaning at this door: give it another name", a.Name))
		case err != nil:
			errs = append(errs, fmt.Errorf("the attribute %s: %w", a.Name, err))
		}
		different[a.Name], n.inBody = true, n.inBody || s.InBody()
		n.parsed = append(n.parsed, named{a.Name, s})
	}
	if most := store.MaxAttributes - len(at.own); len(different) > most {
		errs = append(errs, fmt.Errorf("there are %d attributes, more than %d", len(different), most))
	}
	return n, errors.Join(errs...)
}

// Of adds an item's attributes to the door's own, which it changes and returns without empty
// ones. It leaves out missing ones and ones that no store can keep.
func (n *Names) Of(own store.Attributes, kind string, header http.Header, item []byte) store.Attributes {
	maps.DeleteFunc(own, func(_, value string) bool { return value == "" })
	if n == nil {
		return own
	}
	var list []named
	for i := range n.list {
		if n.list[i].fits(kind) {
			list = append(list, n.parsed[i])
		}
	}
	in := selector.Input{Header: header}
	if n.inBody && len(list) > 0 {
		// The door has read the item as strictly as necessary. A canonical copy would take
		// several times the memory.
		if json.Valid(item) {
			in.JSON, in.Raw = item, true
		} else {
			in.Form = item
		}
	}
	maps.Copy(own, find(&in, list))
	return own
}
