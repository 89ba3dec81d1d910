package query

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/store"
)

func at(text string) store.Instant {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return store.InstantOf(t)
}

func TestParse(t *testing.T) {
	empty, acme := "", "acme"
	for _, test := range []struct {
		name, text string
		want       store.Query
	}{
		{"nothing selects all", "", store.Query{}},
		{"white space is nothing", " \t\n ", store.Query{}},
		{"all qualifiers", "operation:payments.charge state:failed key:k1 principal:shop tenant:acme before:2026-02-01 after:2026-01-01T12:30:00.5+02:00 held", store.Query{
			Operation: "payments.charge", State: semel.Failed, Key: "k1", Principal: "shop", Tenant: &acme,
			Before: at("2026-02-01T00:00:00Z"), After: at("2026-01-01T10:30:00.5Z"), Held: true,
		}},
		{"a value goes on after a colon", "key:a:b:c", store.Query{Key: "a:b:c"}},
		{"a scope", "principal:shop scope:session=s1", store.Query{Principal: "shop" + store.ScopeMark + "session=s1"}},
		{"a scope before its principal", "scope:session=s1 principal:shop", store.Query{Principal: "shop" + store.ScopeMark + "session=s1"}},
		{"a quote inside a value is part of it", `key:a"b`, store.Query{Key: `a"b`}},
		{"a quoted value has spaces and escapes", `key:"a \"b\"\n:é" held`, store.Query{Key: "a \"b\"\n:é", Held: true}},
		{"held may be written in full", "held:true", store.Query{Held: true}},
		{"held as lists show it", "state:held", store.Query{Held: true}},
		{"the empty tenant is not every tenant", `tenant:""`, store.Query{Tenant: &empty}},
		{"the moment that stands for none is a time too", "after:1970-01-01", store.Query{After: 1}},
		{"how it failed", "state:rejected", store.Query{State: semel.Failed, Disposition: semel.DispositionRejected}},
		{"what begins so", `operation:pay.* key:a* principal:* key:"b*"`, store.Query{OperationPrefix: "pay.", KeyPrefix: "a", Key: "b*"}},
		{"without", "-state:failed -held key:k", store.Query{Key: "k", Not: []store.Query{{State: semel.Failed}, {Held: true}}}},
		{"either or", "key:a held OR key:b", store.Query{Any: [][]store.Query{{{Key: "a", Held: true}, {Key: "b"}}}}},
		{"in parentheses", "held (key:a OR -key:b)", store.Query{Held: true, Any: [][]store.Query{{{Key: "a"}, {Not: []store.Query{{Key: "b"}}}}}}},
		{"not in parentheses", `-(key:"a)" OR key:c) ()`, store.Query{Not: []store.Query{{Any: [][]store.Query{{{Key: "a)"}, {Key: "c"}}}}}}},
		{"OR is a value too, and a parenthesis outside of a group", "key:OR principal:a)", store.Query{Key: "OR", Principal: "a)"}},
		{"a name of a call", "held order=9*", store.Query{Held: true, Any: lookup.Named("order=9*").Any}},
		{"a name with a colon", "urn:semel:call:x", lookup.Named("urn:semel:call:x")},
		{"a name in quotes is exact", `"a b*"`, lookup.Exactly("a b*")},
		{"a payload and attributes", `fingerprint:1:` + strings.Repeat("0a", 32) + ` attribute:order=7 attribute:"a b=c=d"`, store.Query{
			Fingerprint: store.NewFingerprint(1, [32]byte(bytes.Repeat([]byte{10}, 32))), Attributes: store.Attributes{"order": "7", "a b": "c=d"},
		}},
		{"an attribute that begins so, and one with a star", `attribute:order=99* attribute:"note=*" attribute:x=*`, store.Query{
			Attributes: store.Attributes{"note": "*"}, AttributePrefixes: store.Attributes{"order": "99", "x": ""},
		}},
		{"a call as a log has it", "call:a/b/0123456789ab held", store.Query{Operation: "a/b", Digest: "0123456789ab", Held: true}},
		{"one moment between two is enough", "after:2026-01-01T00:00:00Z before:2026-01-01T00:00:00.000000001Z", store.Query{After: at("2026-01-01T00:00:00Z"), Before: at("2026-01-01T00:00:00.000000001Z")}},
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
	const all = "operation, state, key, call, principal, scope, tenant, fingerprint, attribute, before, after, created, held, unverified"
	for _, test := range []struct{ name, text, want string }{
		{"an unknown qualifier gets a near one", "sate:failed", "column 1: there is no such qualifier, did you mean state?"},
		{"so do two letters that changed places", "oepration:x", "column 1: there is no such qualifier, did you mean operation?"},
		{"so does a capital", "Key:x", "column 1: there is no such qualifier, did you mean key?"},
		{"so does a word of other tools", "since:2026-01-01", "column 1: there is no such qualifier, did you mean after?"},
		{"one that resembles nothing gets all", "colour:x", "column 1: there is no such qualifier; there are " + all},
		{"an OR at the end", "held OR", "column 8: OR stands between two qualifiers"},
		{"an OR alone", "OR", "column 1: OR stands between two qualifiers; column 3: OR stands between two qualifiers"},
		{"an open parenthesis", "held (key:a", "column 6: the parenthesis isn't closed"},
		{"too many parentheses", strings.Repeat("(", 99), "column 33: the parentheses are nested too deep: the most is 32"},
		{"what is wrong in a group", "-(key:a OR sate:x)", "column 12: there is no such qualifier, did you mean state?"},
		{"no name", `""`, "column 1: a name of a call isn't empty"},
		{"a value alone", ":x", "column 1: a value has no name before it: write key:VALUE or use another of " + all},
		{"a name alone", "key", "column 1: key has no value: write key:VALUE"},
		{"an empty value", "operation: held", "column 1: operation has an empty value"},
		{"an empty value in quotes", `principal:""`, "column 1: principal has an empty value"},
		{"an empty tenant without quotes", "tenant:", `column 1: tenant has no value; the empty tenant is tenant:""`},
		{"a state that there is not", "state:done", "column 7: the states are processing, completed, held and failed, of which some are rejected, aborted or abandoned"},
		{"no held", "held:false", "column 6: held takes no value; you can't select records that aren't held"},
		{"a word as a time", "after:yesterday", "column 7: a time is a date such as 2026-01-31, today, a moment such as 2026-01-31T12:00:00Z, 12:00 of today or an age such as 1h"},
		{"a day that there is not", "after:2026-02-30", "column 7: a time is a date such as 2026-01-31, today, a moment such as 2026-01-31T12:00:00Z, 12:00 of today or an age such as 1h"},
		{"a time that does not fit", "before:9999-01-01", "column 8: the time is too far away: the years are 1678 to 2261"},
		{"nothing between two times", "after:2026-01-02 before:2026-01-02", "column 18: no record is both after and before these times: the first isn't earlier than the second"},
		{"a qualifier twice", "key:a key:b", "column 7: key is given twice"},
		{"a quote that does not end", `key:"a b`, "column 5: the quoted value doesn't end, or has an unknown escape: a quote is \\\", a backslash \\\\"},
		{"an escape that there is not", `key:"\q"`, "column 5: the quoted value doesn't end, or has an unknown escape: a quote is \\\", a backslash \\\\"},
		{"text after a quote", `key:"a"b held`, "column 8: there is no space after the quoted value"},
		{"what names no call", "call:order-1", "column 6: this isn't the name of a call: use the id of a record or an execution, a problem's reference, instance or status URL, or record from a log line"},
		{"a name and a part of it", "key:k call:pay/0123456789ab", "column 12: call already selects tenant, principal, operation and key: leave those out"},
		{"no fingerprint", "fingerprint:9f86", "column 13: a fingerprint is a number, a colon and 64 hexadecimal digits"},
		{"no digest", "digest:XY", "column 8: a digest is up to 64 hexadecimal digits in small letters"},
		{"half an attribute", "attribute:order", "column 11: an attribute is NAME=VALUE, each name once"},
		{"an attribute twice", "attribute:a=1 attribute:a=2", "column 25: an attribute is NAME=VALUE, each name once"},
		{"a NUL", `key:"\x00"`, "column 5: the quoted value isn't valid UTF-8, or has a NUL byte"},
		{"half a character", `key:"\xff"`, "column 5: the quoted value isn't valid UTF-8, or has a NUL byte"},
		{"text that is not UTF-8", "key:\xff", "column 1: the query is not valid UTF-8"},
		{"all at once, with columns in characters", "key:é sate:x state:y", "column 7: there is no such qualifier, did you mean state?; column 20: the states are processing, completed, held and failed, of which some are rejected, aborted or abandoned"},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, err := Parse(test.text)
			if _, ok := errors.AsType[*Error](err); !ok || err.Error() != test.want || !reflect.DeepEqual(q, store.Query{}) {
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

func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		day := now.UTC().Truncate(24 * time.Hour)
		if q, err := Parse("after:today before:13:37"); err != nil || !reflect.DeepEqual(q, store.Query{After: store.InstantOf(day), Before: store.InstantOf(day.Add(13*time.Hour + 37*time.Minute))}) {
			t.Errorf("%+v, %v", q, err)
		}
		if q, err := Parse("after:2h before:7m"); err != nil || !reflect.DeepEqual(q, store.Query{After: store.InstantOf(now.Add(-2 * time.Hour)), Before: store.InstantOf(now.Add(-7 * time.Minute))}) {
			t.Errorf("%+v, %v", q, err)
		}
		q, err := Parse("created<7d created>90m attribute:order=9911")
		want := store.Query{After: store.InstantOf(now.Add(-7 * 24 * time.Hour)), Before: store.InstantOf(now.Add(-90 * time.Minute)), Attributes: store.Attributes{"order": "9911"}}
		if err != nil || !reflect.DeepEqual(q, want) {
			t.Errorf("%+v, %v; want %+v", q, err, want)
		}
	})
	for text, want := range map[string]string{
		"created<":                     "column 9: an age is a duration such as 90s, 15m, 1h or 7d",
		"held created>soon":            "column 14: an age is a duration such as 90s, 15m, 1h or 7d",
		"created<-1h":                  "column 9: an age is a duration such as 90s, 15m, 1h or 7d",
		"created<1h created<2h":        "column 20: this bound is given twice",
		"created:1h":                   "column 1: created is compared with an age: write created<1h or created>1h",
		"created":                      "column 1: created is compared with an age: write created<1h or created>1h",
		"created<1h created>2h":        "column 12: no record is both after and before these times: the first isn't earlier than the second",
		"attribute:a=1* attribute:a=2": "column 26: an attribute is NAME=VALUE, each name once",
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestNamed(t *testing.T) {
	id := store.ID{Tenant: "acme", Principal: "shop", Operation: "pay", Key: "k1"}
	rec := &store.Record{ID: id, Attributes: store.Attributes{"order": "9911", store.AttributeRequestID: "req-1", store.AttributeEventID: "evt-1", store.AttributeCommandID: "cmd-1", store.AttributeTrace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	other := &store.Record{ID: store.ID{Operation: "pay", Key: "k2"}, Attributes: store.Attributes{"order": "8811"}}
	digest := store.Digest(id.Digest()).String()
	for _, name := range []string{"k1", "k1*", "order=9911", "order=99*", "req-1", "evt-1", "cmd-1", "4bf92f3577b34da6a3ce929d0e0e4736", id.Encode(), id.Encode() + ".7", "pay/" + digest[:12]} {
		q := lookup.Named(name)
		if !q.Matches(rec) || q.Matches(other) {
			t.Errorf("%s selects the wrong calls: %+v", name, q)
		}
		word, err := Parse(name)
		if err != nil || !word.Matches(rec) || word.Matches(other) {
			t.Errorf("the word %s selects the wrong calls: %+v, %v", name, word, err)
		}
	}
	for _, name := range []string{"k", "order", "order=", "order=99", "9911", "shop", "*", "=9911", "pay/000000000000"} {
		if q := lookup.Named(name); q.Matches(rec) || q.Matches(other) {
			t.Errorf("%s selects a call", name)
		}
	}
}

func TestExcludes(t *testing.T) {
	for arg, want := range map[string]bool{
		"-state:failed": true, "-held": true, "-unverified": true, "-(held)": true, "-key:a": true,
		"-h": false, "--key": false, "-url:x": false, "-": false, "held": false, "-heldish": false,
	} {
		if Excludes(arg) != want {
			t.Errorf("%s: %t", arg, !want)
		}
	}
}

func TestWhatIsCompletedIsAQuery(t *testing.T) {
	values := map[string]string{"created<": "1h", "created>": "1h", "held": "", "unverified": "", "call:": "pay/0123456789ab", "fingerprint:": "1:" + strings.Repeat("0a", 32), "attribute:": "a=b", "after:": "1h", "before:": "1h", "state:": "failed"}
	for _, name := range Names() {
		value, ok := values[name]
		if !ok {
			value = "x"
		}
		if _, err := Parse(name + value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, state := range States() {
		if q, err := Parse("state:" + state); err != nil || reflect.DeepEqual(q, store.Query{}) {
			t.Errorf("%s: %+v, %v", state, q, err)
		}
	}
}
