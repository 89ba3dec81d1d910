package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Equal reports whether two configurations mean the same, so that changing from
// one to the other is no change.
func Equal(a, b *Config) bool { return len(Diff(a, b)) == 0 }

// Diff lists the paths of the settings that differ, in the order of the file.
// Items of lists are compared by their place; one that only one of the two has is
// named as a whole.
func Diff(a, b *Config) []string {
	return diff("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func diff(path string, a, b reflect.Value) []string {
	var paths []string
	for _, f := range fieldsOf(a.Type()) {
		at, x, y := join(path, f.name), a.Field(f.index), b.Field(f.index)
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
			if textOf(x) != textOf(y) || x.Len() != y.Len() || f.distinct && x.IsNil() != y.IsNil() {
				paths = append(paths, at)
			}
		case !x.Equal(y):
			paths = append(paths, at)
		}
	}
	return paths
}

// bound are the settings that sockets, the store and the engine get once, when
// they are opened.
var bound = []string{
	"listen.", "admin.", "store.", "archive.", "evidence.", "dispatch.", "purge.",
	"commands.whatsapp.path", // messages have a destination if there is one
	"limits.header_bytes", "limits.read_header_timeout", "limits.read_timeout", "limits.idle_timeout",
	"limits.connections", "limits.requests", "limits.streams", "limits.rate",
	"limits.total_bytes", "limits.tenant_bytes", "limits.principal_bytes",
}

// NeedsRestart selects the paths of a [Diff] that take effect only when the
// service starts. The others can be changed while it runs.
func NeedsRestart(diff []string) []string {
	var paths []string
	for _, path := range diff {
		if slices.ContainsFunc(bound, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			paths = append(paths, path)
		}
	}
	return paths
}
