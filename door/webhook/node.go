package webhook

import (
	"bytes"
	"encoding/json"

	"github.com/semelhq/semel/internal/jsonscan"
)

// node is a JSON value that looks for its parts on demand, each once. It has the bytes as
// received, which handlers get.
type node struct {
	raw     []byte
	members map[string]*node // the ones asked for so far
	items   []*node
	listed  bool
}

// bodyNode returns the node of a body. A body that isn't JSON has no parts.
func bodyNode(body []byte) *node {
	if !json.Valid(body) {
		return &node{}
	}
	return &node{raw: body}
}

// member returns a member of an object, by its exact name, or nil.
func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	m, known := n.members[name]
	if known {
		return m
	}
	if raw := jsonscan.Member(n.raw, name); raw != nil {
		m = &node{raw: raw}
	}
	if n.members == nil {
		n.members = map[string]*node{}
	}
	n.members[name] = m
	return m
}

// list returns the items of an array, but at most one more than maxEvents.
func (n *node) list() []*node {
	if n.listed {
		return n.items
	}
	n.listed = true
	for raw := range jsonscan.Items(n.raw) {
		if n.items = append(n.items, &node{raw: raw}); len(n.items) > maxEvents {
			break
		}
	}
	return n.items
}

// text returns a string, a number as written, or true or false. Other values have none.
func (n *node) text() string {
	if n == nil {
		return ""
	}
	raw := bytes.TrimSpace(n.raw)
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || raw[0] == 'n' {
		return ""
	}
	if s, is := jsonscan.Text(raw); is {
		return s
	}
	return string(raw)
}
