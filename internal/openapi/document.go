// Package openapi reads descriptions of other people's APIs, and writes into them what callers
// of a guarded route may expect. It changes nothing else: members keep their order, and YAML its
// comments.
package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Document is a description in OpenAPI 3, as JSON or YAML.
type Document struct {
	root     yaml.MapSlice
	comments yaml.CommentMap
	json     bool
}

// Parse reads a description.
func Parse(text []byte) (*Document, error) {
	d := &Document{comments: yaml.CommentMap{}, json: bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))}
	if err := yaml.UnmarshalWithOptions(text, &d.root, yaml.UseOrderedMap(), yaml.CommentToMap(d.comments)); err != nil {
		return nil, err
	}
	switch version := fmt.Sprint(get(d.root, "openapi")); {
	case get(d.root, "swagger") != nil:
		return nil, errors.New("it is of OpenAPI 2: convert it to 3 first")
	case !strings.HasPrefix(version, "3."):
		return nil, errors.New("it has no openapi: 3, so it describes no API")
	}
	return d, nil
}

// Text is the description in the language that it was read in.
func (d *Document) Text() ([]byte, error) {
	if !d.json {
		return yaml.MarshalWithOptions(d.root, yaml.WithComment(d.comments), yaml.IndentSequence(true))
	}
	text, err := yaml.MarshalWithOptions(d.root, yaml.JSON())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Operation is a method on a path.
type Operation struct {
	// Method is in capitals, and Path has the path of the description's server before it.
	Method, Path string
	// ID is its operationId, if it has one.
	ID string
}

// changing are the methods that change something each time that they are repeated (RFC 9110,
// section 9.2.2).
var changing = []string{"post", "patch"}

// Changing returns the operations that do something again if they are repeated, and the address
// of the first server; "" if it is relative or has variables.
func (d *Document) Changing() (ops []Operation, server string) {
	if servers, _ := get(d.root, "servers").([]any); len(servers) > 0 {
		first, _ := servers[0].(yaml.MapSlice)
		server, _ = get(first, "url").(string)
	}
	base := server
	if scheme, rest, absolute := strings.Cut(server, "://"); absolute {
		host, path, _ := strings.Cut(rest, "/")
		server, base = scheme+"://"+host, path
	} else {
		server = ""
	}
	if strings.ContainsAny(server+base, "{}") {
		server, base = "", ""
	}
	base = strings.TrimSuffix("/"+strings.Trim(base, "/"), "/")
	for _, path := range object(get(d.root, "paths")) {
		for _, method := range changing {
			if op := object(get(object(path.Value), method)); op != nil {
				id, _ := get(op, "operationId").(string)
				ops = append(ops, Operation{strings.ToUpper(method), base + fmt.Sprint(path.Key), id})
			}
		}
	}
	return ops, server
}

// object is v if it is an object.
func object(v any) yaml.MapSlice {
	m, _ := v.(yaml.MapSlice)
	return m
}

// find returns the place of a member; -1 if there is none.
func find(m yaml.MapSlice, name string) int {
	return slices.IndexFunc(m, func(item yaml.MapItem) bool { return fmt.Sprint(item.Key) == name })
}

// get returns a member, or nil.
func get(m yaml.MapSlice, name string) any {
	if i := find(m, name); i >= 0 {
		return m[i].Value
	}
	return nil
}

// set replaces a member, or adds it.
func set(m yaml.MapSlice, name string, v any) yaml.MapSlice {
	if i := find(m, name); i >= 0 {
		m[i].Value = v
		return m
	}
	return append(m, yaml.MapItem{Key: name, Value: v})
}

// missing adds a member that isn't there.
func missing(m yaml.MapSlice, name string, v any) yaml.MapSlice {
	if find(m, name) >= 0 {
		return m
	}
	return append(m, yaml.MapItem{Key: name, Value: v})
}

// edit replaces the object that is a member by what f makes of it. A member that isn't there is
// added if f makes something.
func edit(m yaml.MapSlice, name string, f func(yaml.MapSlice) yaml.MapSlice) yaml.MapSlice {
	if v := f(object(get(m, name))); v != nil {
		return set(m, name, v)
	}
	return m
}
