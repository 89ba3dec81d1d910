package config

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
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

// redacted is a copy without secrets: digests keep their first digits, URLs all but a password.
func redacted(c *Config) *Config {
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
	escaped := mapTexts(redacted(c), func(_ strictyaml.Field, text string) string { return strings.ReplaceAll(text, "$", "$$") })
	text, err := yaml.MarshalWithOptions(escaped, yaml.IndentSequence(true))
	if err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// PrintJSON is [Print] as JSON.
func PrintJSON(w io.Writer, c *Config) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(redacted(c))
}

// With returns a copy with one more operation and one more route. Their zero settings get
// their defaults, and the whole is checked like a file; errors come as [Errors]. The
// operation replaces one of the same name.
func (c *Config) With(op Operation, rt Route) (*Config, error) {
	out := strictyaml.Copy(reflect.ValueOf(c).Elem()).Addr().Interface().(*Config)
	strictyaml.FillDefaults(reflect.ValueOf(&op).Elem())
	strictyaml.FillDefaults(reflect.ValueOf(&rt).Elem())
	if have := out.operation(op.Name); have != nil {
		*have = op
	} else {
		out.Operations = append(out.Operations, op)
	}
	out.Routes = append(out.Routes, rt)
	if errs := check(strictyaml.NewReport(""), out); len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}
