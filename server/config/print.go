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
)

// mapTexts is a copy whose texts went through fn.
func mapTexts(c *Config, fn func(f field, text string) string) *Config {
	out := &Config{}
	copyInto(reflect.ValueOf(out).Elem(), reflect.ValueOf(c).Elem())
	eachLeaf("", reflect.ValueOf(out).Elem(), func(_ string, v reflect.Value, f field) {
		switch {
		case v.Kind() == reflect.String:
			v.SetString(fn(f, v.String()))
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
			for i := range v.Len() {
				v.Index(i).SetString(fn(f, v.Index(i).String()))
			}
		}
	})
	return out
}

// copyInto copies a value so that it shares no list with the original.
func copyInto(to, from reflect.Value) {
	switch {
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyInto(to.Field(i), from.Field(i))
		}
	case from.Kind() == reflect.Slice && from.Len() > 0:
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyInto(to.Index(i), from.Index(i))
		}
	default:
		to.Set(from)
	}
}

// redacted is a copy without secrets: a digest keeps its first digits, a URL
// everything but its password.
func redacted(c *Config) *Config {
	return mapTexts(c, func(f field, text string) string {
		if f.secret == "" {
			return text
		}
		return hide(f.secret, text)
	})
}

// hide makes a secret printable.
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
		// What is no URL may be a password from its first character on.
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

// Print writes the whole configuration as YAML that [Load] reads, with what was
// left out in the file, and without secrets.
func Print(w io.Writer, c *Config) error {
	escaped := mapTexts(redacted(c), func(_ field, text string) string { return strings.ReplaceAll(text, "$", "$$") })
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
