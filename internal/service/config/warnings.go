package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/selector"
)

// Warnings are about valid settings that you may not want, a sentence each.
func (c *Config) Warnings() []string {
	return append(c.ephemeralMembers(), c.coarseSources()...)
}

// ephemeralNames are names of members that bodies often have and that differ in each delivery
// of one call. A key template may have none of them.
var ephemeralNames = []string{"timestamp", "requested_at", "request_id", "nonce", "attempt"}

// ephemeralMembers warns of routes whose key is made from a JSON body and whose payload may
// still differ between two deliveries of one call (MAP-CART.5). What the route itself reads is
// known; of other members only their usual names are.
func (c *Config) ephemeralMembers() (list []string) {
	for path, r := range items("routes", c.Routes) {
		if !madeOfJSON(&r.KeyTemplate) || len(r.Fingerprint.Only) > 0 {
			continue
		}
		said := false
		attributes := pairs(r.Attributes)
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			pointer, ok := strings.CutPrefix(attributes[name], string(selector.JSON)+":")
			if _, found := keytemplate.LintName(pointer[strings.LastIndexByte(pointer, '/')+1:]); !ok || !found || slices.Contains(r.Fingerprint.Ignore, pointer) || reads(&r.KeyTemplate, pointer) {
				continue
			}
			said = true
			list = append(list, fmt.Sprintf("%s.key_template: the key leaves %s out, which by its name is another one in each delivery, so a repeated call is a conflict: add %s to fingerprint.ignore", path, pointer, pointer))
		}
		if !said && len(r.Fingerprint.Ignore) == 0 {
			list = append(list, fmt.Sprintf("%s.key_template: what the key leaves out of a body is still compared, so a member that is another one in each delivery (%s) makes a repeated call a conflict: "+
				"if bodies have one, add it to fingerprint.ignore, as in ignore: [/%s]", path, strings.Join(ephemeralNames, ", "), ephemeralNames[1]))
		}
	}
	return list
}

// madeOfJSON reports whether a template reads a JSON body.
func madeOfJSON(t *KeyTemplate) bool {
	for _, text := range pairs(t.Values) {
		if s, err := selector.Parse(text, selector.Values); err == nil && s.InJSON() {
			return true
		}
	}
	return false
}

// reads reports whether a template reads the value that a pointer leads to.
func reads(t *KeyTemplate, pointer string) bool {
	for _, text := range pairs(t.Values) {
		if text == string(selector.JSON)+":"+pointer {
			return true
		}
	}
	return false
}
