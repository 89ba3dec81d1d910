package query

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
)

func at(text string) semel.Instant {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return semel.InstantOf(t)
}

func TestParse(t *testing.T) {
	empty, acme := "", "acme"
	for _, test := range []struct {
		name, text string
		want       semel.Query
	}{
		{"nothing selects all", "", semel.Query{}},
		{"white space is nothing", " \t\n ", semel.Query{}},
		{"all qualifiers", "operation:payments.charge state:failed key:k1 principal:shop tenant:acme before:2026-02-01 after:2026-01-01T12:30:00.5+02:00 held", semel.Query{
			Operation: "payments.charge", State: semel.Failed, Key: "k1", Principal: "shop", Tenant: &acme,
			Before: at("2026-02-01T00:00:00Z"), After: at("2026-01-01T10:30:00.5Z"), Held: true,
		}},
		{"a value goes on after a colon", "key:a:b:c", semel.Query{Key: "a:b:c"}},
		{"a quote inside a value is part of it", `key:a"b`, semel.Query{Key: `a"b`}},
		{"a quoted value has spaces and escapes", `key:"a \"b\"\n:é" held`, semel.Query{Key: "a \"b\"\n:é", Held: true}},
		{"held may be written in full", "held:true", semel.Query{Held: true}},
		{"the empty tenant is not every tenant", `tenant:""`, semel.Query{Tenant: &empty}},
		{"the moment that stands for none is a time too", "after:1970-01-01", semel.Query{After: 1}},
		{"one moment between two is enough", "after:2026-01-01T00:00:00Z before:2026-01-01T00:00:00.000000001Z", semel.Query{After: at("2026-01-01T00:00:00Z"), Before: at("2026-01-01T00:00:00.000000001Z")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(test.text)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	const all = "operation, state, key, principal, tenant, before, after, held"
	for _, test := range []struct{ name, text, want string }{
		{"an unknown qualifier gets a near one", "sate:failed", "column 1: there is no such qualifier, did you mean state?"},
		{"so do two letters that changed places", "oepration:x", "column 1: there is no such qualifier, did you mean operation?"},
		{"so does a capital", "Key:x", "column 1: there is no such qualifier, did you mean key?"},
		{"so does a word of other tools", "since:2026-01-01", "column 1: there is no such qualifier, did you mean after?"},
		{"one that resembles nothing gets all", "colour:x", "column 1: there is no such qualifier: there are " + all},
		{"a word alone", "order-1", "column 1: a word stands alone: write key:VALUE to select a key, or another of " + all},
		{"a value alone", ":x", "column 1: a value has no name before it: write key:VALUE or another of " + all},
		{"a name alone", "key", "column 1: key has no value: write key:VALUE"},
		{"an empty value", "operation: held", "column 1: operation has an empty value"},
		{"an empty value in quotes", `principal:""`, "column 1: principal has an empty value"},
		{"an empty tenant without quotes", "tenant:", `column 1: tenant has no value; the empty tenant is tenant:""`},
		{"a state that there is not", "state:done", "column 7: the states are processing, completed and failed"},
		{"no held", "held:false", "column 6: held takes no value; what is not held can't be selected"},
		{"a word as a time", "after:yesterday", "column 7: a time is a date as 2026-01-31 or a moment as 2026-01-31T12:00:00Z"},
		{"a day that there is not", "after:2026-02-30", "column 7: a time is a date as 2026-01-31 or a moment as 2026-01-31T12:00:00Z"},
		{"a time that does not fit", "before:9999-01-01", "column 8: the time is too far away: the years are 1678 to 2261"},
		{"nothing between two times", "after:2026-01-02 before:2026-01-02", "column 18: nothing is both after and before: the first is not earlier than the second"},
		{"a qualifier twice", "key:a key:b", "column 7: key is given twice"},
		{"a quote that does not end", `key:"a b`, "column 5: the quoted value does not end, or has an escape that Go strings do not have"},
		{"an escape that there is not", `key:"\q"`, "column 5: the quoted value does not end, or has an escape that Go strings do not have"},
		{"text after a quote", `key:"a"b held`, "column 8: there is no space after the quoted value"},
		{"a NUL", `key:"\x00"`, "column 5: the quoted value is not UTF-8 without NUL"},
		{"half a character", `key:"\xff"`, "column 5: the quoted value is not UTF-8 without NUL"},
		{"text that is not UTF-8", "key:\xff", "column 1: the query is not valid UTF-8"},
		{"all at once, with columns in characters", "key:é sate:x state:y", "column 7: there is no such qualifier, did you mean state?; column 20: the states are processing, completed and failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, err := Parse(test.text)
			if _, ok := errors.AsType[*Error](err); !ok || err.Error() != test.want || !reflect.DeepEqual(q, semel.Query{}) {
				t.Errorf("%+v, %v; want %s", q, err, test.want)
			}
		})
	}
}

func TestEveryValueCanBeWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := strings.ReplaceAll(strings.ToValidUTF8(rapid.String().Draw(t, "value"), "?"), "\x00", "0")
		q, err := Parse("tenant:" + strconv.Quote(value))
		if err != nil || q.Tenant == nil || *q.Tenant != value {
			t.Fatalf("%q is read as %+v, %v", value, q, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "held", `key:"a b" tenant:""`, "after:2026-01-01 before:2026-01-02", "sate:x ::", `key:"\u00e9`, "é:é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err == nil {
			again, err := Parse(" " + text + " ")
			if err != nil || !reflect.DeepEqual(q, again) {
				t.Fatalf("with space around it %q gives %+v, %v", text, again, err)
			}
			return
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || len(e.Problems) == 0 {
			t.Fatalf("the error is %v", err)
		}
		for _, p := range e.Problems {
			if p.Column < 1 || p.Column > utf8.RuneCountInString(text)+1 || p.Message == "" {
				t.Fatalf("problem %+v of %q", p, text)
			}
		}
	})
}
