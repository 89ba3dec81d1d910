package openapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// money are words in paths of operations that move money. An operation that is wrongly financial
// is kept longer; one that wrongly isn't may charge twice.
var money = []string{"charge", "payment", "payout", "refund", "transfer", "withdrawal", "deposit", "capture", "invoice", "checkout"}

// Routes proposes the configuration of a service in front of the API: a route and an operation
// for each method that does something again if it is repeated. The rest passes.
func (d *Document) Routes(upstream string) ([]byte, error) {
	ops, _ := d.Changing()
	if len(ops) == 0 {
		return nil, fmt.Errorf("it has no POST and no PATCH, so nothing needs a key")
	}
	var operations, routes []any
	var taken []string
	financial := false
	for _, op := range ops {
		name := nameOf(op)
		for n, base := 2, name; slices.Contains(taken, name); n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		taken = append(taken, name)
		declared := members("name", name)
		if slices.ContainsFunc(money, func(word string) bool { return strings.Contains(strings.ToLower(op.Path), word) }) {
			declared, financial = append(declared, yaml.MapItem{Key: "financial", Value: true}), true
		}
		operations = append(operations, declared)
		routes = append(routes, members("match", op.Method+" "+op.Path, "upstream", upstream, "operation", name))
	}
	routes = append(routes, members("match", "/", "upstream", upstream, "mode", "off"))
	config := members("operations", operations, "routes", routes)
	if financial {
		config = append(config, yaml.MapItem{Key: "archive", Value: members("dir", "./semel-archive")})
	}
	return yaml.MarshalWithOptions(config, yaml.IndentSequence(true))
}

var (
	word    = regexp.MustCompile(`[a-z0-9]+`)
	version = regexp.MustCompile(`^v[0-9]+$`)
)

// verbs are what methods do to a collection or a thing, where the path doesn't say.
var verbs = map[string]string{"POST": "create", "PATCH": "update"}

// nameOf names an operation by its path, as in payments.refund: the thing, and what happens to it.
func nameOf(op Operation) string {
	var parts []string
	segments := strings.Split(strings.Trim(op.Path, "/"), "/")
	for _, s := range segments {
		if w := strings.Join(word.FindAllString(strings.ToLower(s), -1), "_"); w != "" && !strings.HasPrefix(s, "{") && !version.MatchString(s) {
			parts = append(parts, w)
		}
	}
	last := segments[len(segments)-1]
	afterThing := len(segments) > 1 && strings.HasPrefix(segments[len(segments)-2], "{") && !strings.HasPrefix(last, "{")
	if !afterThing || op.Method != "POST" || len(parts) < 2 || strings.HasSuffix(last, "s") {
		parts = append(parts, verbs[op.Method])
	}
	return strings.Join(parts, ".")
}
