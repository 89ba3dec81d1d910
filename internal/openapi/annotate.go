package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Names of what Annotate adds to the components.
const (
	keyName      = "IdempotencyKey"
	replayedName = "Idempotency-Replayed"
	problemName  = "IdempotencyProblem"
)

// refusals are the answers that a guard gives by itself.
var refusals = []struct{ status, name, text string }{
	{"400", "IdempotencyKeyMissing", "The key is missing or can't be used. Nothing was executed."},
	{"409", "IdempotencyInFlight", "The first request with this key is still running, or nobody knows how it ended. Nothing was executed. The member action says what to do."},
	{"422", "IdempotencyConflict", "The key was used with another payload. Nothing was executed."},
}

// Annotate writes into each operation that does something again if it is repeated: the header
// with the key, the refusals of a guard, and the header that says that an answer is a replay.
// What the description says already stays as it is, so annotating twice changes nothing.
// It returns how many operations it changed.
func (d *Document) Annotate(header, marker string, optional bool) (changed int) {
	var shared []string // responses of the components that operations refer to
	d.root = edit(d.root, "paths", func(paths yaml.MapSlice) yaml.MapSlice {
		for i := range paths {
			item := object(paths[i].Value)
			for _, method := range changing {
				if get(item, method) == nil {
					continue
				}
				item = edit(item, method, func(op yaml.MapSlice) yaml.MapSlice {
					if d.hasHeader(get(item, "parameters"), header) || d.hasHeader(get(op, "parameters"), header) {
						return op
					}
					changed++
					return annotated(op, &shared)
				})
			}
		}
		return paths
	})
	if changed > 0 {
		d.root = edit(d.root, "components", func(c yaml.MapSlice) yaml.MapSlice { return components(c, header, marker, optional, shared) })
	}
	return changed
}

// annotated adds what all operations refer to.
func annotated(op yaml.MapSlice, shared *[]string) yaml.MapSlice {
	list, _ := get(op, "parameters").([]any)
	op = set(op, "parameters", append(slices.Clone(list), ref("parameters", keyName)))
	return edit(op, "responses", func(responses yaml.MapSlice) yaml.MapSlice {
		for i, r := range responses {
			if !strings.HasPrefix(fmt.Sprint(r.Key), "2") {
				continue
			}
			if name, ok := referred(r.Value, "responses"); ok {
				*shared = append(*shared, name)
				continue
			}
			responses[i].Value = marked(object(r.Value))
		}
		for _, r := range refusals {
			responses = missing(responses, r.status, ref("responses", r.name))
		}
		return responses
	})
}

// marked is a response with the header that says that it is a replay.
func marked(response yaml.MapSlice) yaml.MapSlice {
	return edit(response, "headers", func(headers yaml.MapSlice) yaml.MapSlice {
		return missing(headers, replayedName, ref("headers", replayedName))
	})
}

// components adds what operations refer to by name.
func components(c yaml.MapSlice, header, marker string, optional bool, shared []string) yaml.MapSlice {
	add := func(kind, name string, v yaml.MapSlice) {
		c = edit(c, kind, func(m yaml.MapSlice) yaml.MapSlice { return missing(m, name, v) })
	}
	add("parameters", keyName, members(
		"name", header, "in", "header", "required", !optional,
		"description", "Names this request. Make a new one for each thing that you want done, keep it, and send the same in every retry.",
		"schema", members("type", "string", "minLength", 1, "maxLength", 255)))
	add("headers", replayedName, members(
		"description", "true if this is the answer to an earlier request with the same key. It is not executed again.",
		"schema", members("type", "string")))
	add("schemas", problemName, members("type", "object", "properties", members(
		"type", members("type", "string"), "title", members("type", "string"), "status", members("type", "integer"), "detail", members("type", "string"),
		"code", members("type", "string", "description", "What happened, for programs, such as in_flight or conflict."),
		"action", members("type", "string", "enum", []any{"wait", "verify", "fix_request", "new_key", "stop"}, "description", "What the caller does next."),
		"retryable", members("type", "boolean"), "retry_after", members("type", "integer", "description", "Seconds."))))
	for _, r := range refusals {
		add("responses", r.name, members("description", r.text, "content", members("application/problem+json", members("schema", ref("schemas", problemName)))))
	}
	return edit(c, "responses", func(responses yaml.MapSlice) yaml.MapSlice {
		for i, r := range responses {
			if slices.Contains(shared, fmt.Sprint(r.Key)) {
				responses[i].Value = marked(object(r.Value))
			}
		}
		return responses
	})
}

// hasHeader reports whether a list of parameters has a header.
func (d *Document) hasHeader(list any, name string) bool {
	parameters, _ := list.([]any)
	return slices.ContainsFunc(parameters, func(v any) bool {
		if shared, ok := referred(v, "parameters"); ok {
			v = get(object(get(object(get(d.root, "components")), "parameters")), shared)
		}
		is, _ := get(object(v), "name").(string)
		return get(object(v), "in") == "header" && strings.EqualFold(is, name)
	})
}

// referred is the name in a reference to a component.
func referred(v any, kind string) (name string, ok bool) {
	to, _ := get(object(v), "$ref").(string)
	return strings.CutPrefix(to, "#/components/"+kind+"/")
}

func ref(kind, name string) yaml.MapSlice { return members("$ref", "#/components/"+kind+"/"+name) }

// members makes an object of names and values in turn.
func members(pairs ...any) (m yaml.MapSlice) {
	for pair := range slices.Chunk(pairs, 2) {
		m = append(m, yaml.MapItem{Key: pair[0], Value: pair[1]})
	}
	return m
}
