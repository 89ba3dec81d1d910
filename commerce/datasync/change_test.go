package datasync_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
)

const written = `{"entity":"user","id":"u<1>","version":7,"time":"2026-11-25T12:00:00.001Z","origin":"shopify","content":{"name":"A & B","at":1.10}}`

func TestChangesAreReadStrictly(t *testing.T) {
	c, err := datasync.ParseChange("shop", []byte(written))
	must(t, err)
	if c.Tenant != "shop" || c.ID != "u<1>" || c.Version != 7 || c.Time.UnixMilli() != start.UnixMilli()+1 || c.Origin != "shopify" || c.Key() != "sync:user:u%3C1%3E:7:shopify" {
		t.Errorf("%+v %s", c, c.Key())
	}
	text, err := c.Encode()
	must(t, err)
	if string(text) != written {
		t.Errorf("%s", text)
	}
	for name, text := range map[string]string{
		"a name in another case": strings.Replace(written, `"id"`, `"ID"`, 1),
		"a further name":         strings.Replace(written, `{"entity"`, `{"more":1,"entity"`, 1),
		"a name twice":           strings.Replace(written, `"version":7`, `"version":7,"version":8`, 1),
		"a missing name":         strings.Replace(written, `"version":7,`, ``, 1),
		"a version with an end":  strings.Replace(written, `7`, `7.5`, 1),
		"a version beyond all":   strings.Replace(written, `7`, `9223372036854775808`, 1),
		"a time of another form": strings.Replace(written, `2026-11-25T`, `25.11.2026 `, 1),
		"more than one":          written + written,
		"a list":                 "[" + written + "]",
		"null":                   "null",
		"nothing":                "",
		"an endless one":         strings.Replace(written, `A & B`, strings.Repeat("x", 100<<10), 1),
		"a deep one":             strings.Replace(written, `"A & B"`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000), 1),
	} {
		if c, err := datasync.ParseChange("", []byte(text)); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// FuzzParseChange: what is read can be written and read again, and is the same.
func FuzzParseChange(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte(strings.Replace(written, `{"name":"A & B","at":1.10}`, `null`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := datasync.ParseChange("", text)
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			if c.Time.Year() < 0 || c.Time.Year() > 9999 {
				return
			}
			t.Fatal(err)
		}
		d, err := datasync.ParseChange("", again)
		if err != nil || d.Ref != c.Ref || d.Version != c.Version || !d.Time.Equal(c.Time) || d.Origin != c.Origin || !json.Valid(d.Content) {
			t.Fatalf("%q: %+v and %+v, %v", text, c, d, err)
		}
	})
}
