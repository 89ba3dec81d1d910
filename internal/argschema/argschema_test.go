package argschema

import (
	"fmt"
	"strings"
	"testing"
)

func TestSchemasThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "{", "1", `{"type":"text"}`, `{"$ref":"#/definitions/none"}`, `{"$ref":"file:///etc/hosts"}`, `{"$ref":"http://127.0.0.1:1/schema.json"}`, `{"pattern":"("}`,
	} {
		if _, err := Compile([]byte(text)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestFaults(t *testing.T) {
	s, err := Compile([]byte(`{"required":["a","b"],"additionalProperties":false,"properties":{"a":{"type":["string","null"]},"b":{"format":"uuid"},"c":{"items":{"maximum":9}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"a":"x","b":"0f8fad5b-d9cb-469f-a165-70867728950e","c":[9,9.0]}`: "[]",
		`{}`:                          "[{[] required [a b] lacks a, b}]",
		`{"a":1,"b":1}`:               "[{[a] type [] is number and should be null or string}]",
		`{"a":null,"b":"1"}`:          "[{[b] format [] does not fit format}]",
		`{"a":null,"b":1,"c":[1,10]}`: "[{[c 1] maximum [] does not fit maximum}]",
		`{"a":null,"b":1,"d":1}`:      "[{[] additionalProperties [d] has members that the schema does not know: d}]",
		`{"a":null,"b":1,"c":[` + strings.Repeat("10,", 30) + `9]}`: "20 mistakes",
	} {
		tree, err := Decode([]byte(text))
		if err != nil || Bounded(tree) != nil {
			t.Fatal(err)
		}
		mistakes := s.Check(tree)
		got := fmt.Sprint(mistakes)
		if len(mistakes) > 2 {
			got = fmt.Sprint(len(mistakes), " mistakes")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	for text, bounded := range map[string]bool{
		`[1,-1.5e3,{"a":"1e9999"},null,true]`: true,
		`1e1000`:                              true,
		`1E-1000`:                             true,
		`1e1001`:                              false,
		`[{"a":[0,1E-1001]}]`:                 false,
		`1e99999999999999999999`:              false,
		strings.Repeat("1", 1000):             true,
		strings.Repeat("1", 1001):             false,
	} {
		tree, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := Bounded(tree); (got == nil) != bounded {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}
