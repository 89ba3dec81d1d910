package config

import (
	"fmt"
	"io"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/semelhq/semel/internal/strictyaml"
)

func mapTexts(c *Config, fn func(f strictyaml.Field, text string) string) *Config {
	out := strictyaml.Copy(reflect.ValueOf(c).Elem())
	strictyaml.EachLeaf("", out, func(_ string, v reflect.Value, f strictyaml.Field) {
		switch {
		case v.Kind() == reflect.String:
			v.SetString(fn(f, v.String()))
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
			for i := range v.Len() {
				v.Index(i).SetString(fn(f, v.Index(i).String()))
			}
		}
	})
	return out.Addr().Interface().(*Config)
}

// Redacted is a copy without secrets: digests keep their first digits, URLs all but a password.
func Redacted(c *Config) *Config {
	return mapTexts(c, func(f strictyaml.Field, text string) string {
		if f.Secret == "" {
			return text
		}
		return hide(f.Secret, text)
	})
}

func hide(kind, text string) string {
	if kind == "digest" {
		if len(text) <= 8 {
			return text
		}
		return text[:8] + "..."
	}
	scheme, rest, _ := strings.Cut(text, ":")
	if scheme == "pebble" || text == "memory:" || text == "" {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		// A text that isn't a URL may be a password from its first character on.
		if strings.HasPrefix(rest, "//") && slices.Contains(slices.Concat(remoteStores, []string{"http", "https", "h2c"}), scheme) {
			return scheme + "://..."
		}
		return "..."
	}
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.Redacted()
}

// Print writes the whole configuration as YAML that [Load] reads. It includes the
// defaults, and hides secrets.
func Print(w io.Writer, c *Config) error {
	escaped := mapTexts(Redacted(c), func(_ strictyaml.Field, text string) string { return strings.ReplaceAll(text, "$", "$$") })
	text, err := yaml.MarshalWithOptions(escaped, yaml.IndentSequence(true))
	if err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// Defaults has the default settings of a part of a configuration.
func Defaults[T any]() (part T) {
	strictyaml.FillDefaults(reflect.ValueOf(&part).Elem())
	return part
}

// With returns a copy with one more operation, and more routes or servers. The zero settings of
// operation and routes get their defaults, and the whole is checked like a file; errors come as
// [Errors]. The operation replaces one of the same name.
func (c *Config) With(op Operation, routes []Route, servers Servers) (*Config, error) {
	out := strictyaml.Copy(reflect.ValueOf(c).Elem()).Addr().Interface().(*Config)
	strictyaml.FillDefaults(reflect.ValueOf(&op).Elem())
	if have := out.operation(op.Name); have != nil {
		*have = op
	} else {
		out.Operations = append(out.Operations, op)
	}
	for _, rt := range routes {
		strictyaml.FillDefaults(reflect.ValueOf(&rt).Elem())
		out.Routes = append(out.Routes, rt)
	}
	out.MCP = append(out.MCP, servers.MCP...)
	if errs := check(strictyaml.NewReport(""), out); len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}

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
// destination, and which. Dispatchers get destinations once. With the first server over MCP the
// listener speaks HTTP/1.1 only.
var boundDoor = regexp.MustCompile(`^(webhooks\[\d+\](\.(name|source|mode|timeout|lease|payments))?|activitypub\[\d+\](\.(name|timeout|lease))?|mcp\[0\])$`)

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
