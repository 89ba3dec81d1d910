package webhook

import (
	"bytes"
	"encoding/json"
)

// node is a JSON value whose parts are parsed when somebody asks for them, each once. It
// keeps the bytes as they came, which handlers get.
type node struct {
	raw     json.RawMessage
	parsed  bool
	members map[string]*node
	items   []*node
}

func (n *node) parse() {
	if n.parsed {
		return
	}
	n.parsed = true
	switch trimmed := bytes.TrimLeft(n.raw, " \t\r\n"); {
	case len(trimmed) == 0:
	case trimmed[0] == '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(n.raw, &members) == nil {
			n.members = make(map[string]*node, len(members))
			for name, raw := range members {
				n.members[name] = &node{raw: raw}
			}
		}
	case trimmed[0] == '[':
		var items []json.RawMessage
		if json.Unmarshal(n.raw, &items) == nil {
			for _, raw := range items {
				n.items = append(n.items, &node{raw: raw})
			}
		}
	}
}

// member is a member of an object, or nil.
func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	n.parse()
	return n.members[name]
}

// list is the items of an array.
func (n *node) list() []*node {
	if n == nil {
		return nil
	}
	n.parse()
	return n.items
}

// text is a string, a number as it was written, or true or false. Anything else has none.
func (n *node) text() string {
	if n == nil {
		return ""
	}
	raw := bytes.TrimSpace(n.raw)
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || raw[0] == 'n' {
		return ""
	}
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
