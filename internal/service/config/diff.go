package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Diff lists the paths of the settings that differ, in the order of the file. It compares
// items of lists by their place, and lists an item that only one of the two has as a
// whole.
func Diff(a, b *Config) []string {
	return diff("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func diff(path string, a, b reflect.Value) []string {
	var paths []string
	for _, f := range strictyaml.Fields(a.Type()) {
		at, x, y := strictyaml.Join(path, f.Name), a.FieldByIndex(f.Index), b.FieldByIndex(f.Index)
		switch {
		case x.Kind() == reflect.Struct:
			paths = append(paths, diff(at, x, y)...)
		case x.Kind() == reflect.Slice && x.Type().Elem().Kind() == reflect.Struct:
			for i := range max(x.Len(), y.Len()) {
				item := fmt.Sprintf("%s[%d]", at, i)
				if i >= x.Len() || i >= y.Len() {
					paths = append(paths, item)
					continue
				}
				paths = append(paths, diff(item, x.Index(i), y.Index(i))...)
			}
		case x.Kind() == reflect.Slice:
			if strictyaml.TextOf(x) != strictyaml.TextOf(y) || x.Len() != y.Len() || f.Distinct && x.IsNil() != y.IsNil() {
				paths = append(paths, at)
			}
		case !x.Equal(y):
			paths = append(paths, at)
		}
	}
	return paths
}

// bound are the settings that sockets, the store and the engine read only when they are opened.
var bound = []string{
	"listen.", "admin.", "store.", "archive.", "evidence.", "dispatch.", "purge.", "metrics.", "traces.",
	"commerce.apply_url", "commerce.charge_url", // they decide whether entities have a destination, and payments an archive
	"commands.whatsapp.path", // it decides whether messages have a destination
	"limits.header_bytes", "limits.read_header_timeout", "limits.read_timeout", "limits.idle_timeout",
	"limits.connections", "limits.rate",
	"quotas.", "limits.total_bytes", "limits.tenant_bytes", "limits.principal_bytes",
}

// boundDoor are the settings of webhooks and inboxes that decide whether accepted items have a
// destination, and which. Dispatchers get destinations once.
var boundDoor = regexp.MustCompile(`^(webhooks\[\d+\](\.(name|source|mode|timeout|lease|payments))?|activitypub\[\d+\](\.(name|timeout|lease))?)$`)

// NeedsRestart selects the paths of a [Diff] that take effect only after a restart. You
// can change the others while the service runs.
func NeedsRestart(diff []string) []string {
	var paths []string
	for _, path := range diff {
		if slices.ContainsFunc(bound, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) || boundDoor.MatchString(path) {
			paths = append(paths, path)
		}
	}
	return paths
}
