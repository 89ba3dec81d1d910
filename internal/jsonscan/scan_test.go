package jsonscan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/canon"
)

func TestMembers(t *testing.T) {
	const text = ` { "a" : 1 , "A":[1,{"x":"}"}], "\u0062\n":"q\"," , "":{"b":[]}, "n":null,"last":-1.5e3 } `
	var got []string
	for name, value := range Members([]byte(text)) {
		got = append(got, string(name)+"="+string(value))
	}
	want := []string{"a=1", `A=[1,{"x":"}"}]`, "b\n=" + `"q\","`, `={"b":[]}`, "n=null", "last=-1.5e3"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Member([]byte(`{"a":1,"b":2,"a":3}`), "a"); string(got) != "3" {
		t.Errorf("of two members the first counts: %s", got)
	}
	if Member([]byte(`{"ID":1}`), "id") != nil || Member([]byte(`["id"]`), "id") != nil || Member(nil, "id") != nil {
		t.Error("a member that isn't there has a value")
	}
}

func TestItems(t *testing.T) {
	var got []string
	for item := range Items([]byte(` [ 1 ,"a,b", [2,3] , {"x":[4]},true ] `)) {
		got = append(got, string(item))
	}
	if want := []string{"1", `"a,b"`, "[2,3]", `{"x":[4]}`, "true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, none := range []string{"", "[]", "[ ]", "{}", "1", "["} {
		for item := range Items([]byte(none)) {
			t.Errorf("%q has the item %q", none, item)
		}
	}
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ text, path, want string }{
		{`{"a":1,"x":2,"b":3}`, "x", `{"a":1,"b":3}`},
		{` { "x" : [1,{"x":2}] , "b" : 3 } `, "x", ` { "b" : 3 } `},
		{` { "a":1 , "x" : 2 } `, "x", ` { "a":1 } `},
		{`{"x":2}`, "x", `{}`},
		{`{"\u0078":2,"a":3}`, "x", `{"a":3}`},
		{`{"a":{"x":1,"y":2},"x":3}`, "a.x", `{"a":{"y":2},"x":3}`},
		{` {"b":0, "a" : {"y":2 , "x":1} , "c":0}`, "a.x", ` {"b":0, "a" : {"y":2} , "c":0}`},
		{`{"x":1,"x":2}`, "x", ""}, {`{"a":{"x":1},"a":{}}`, "a.x", ""}, {`{"a":1}`, "x", ""}, {`{"a":1}`, "a.x", ""}, {`["x"]`, "x", ""}, {``, "x", ""}, {`1`, "x", ""},
	} {
		if got := string(Without([]byte(c.text), strings.Split(c.path, ".")...)); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(cmp.Or(c.want, c.text)), "") {
			t.Errorf("%s without %s is %s, want %s", c.text, c.path, got, c.want)
		}
	}
	text := []byte(`{"a":1,"b":[{"c":2}]}`)
	for _, v := range Members(text) {
		for item := range Items(v) {
			for _, v := range Members(item) {
				if at := Offset(text, v); string(v) != "2" || text[at] != '2' {
					t.Errorf("%s is at %d", v, at)
				}
			}
		}
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int{`1`: 1, `"a,b[{"`: 1, `[1,2]`: 3, `{"a":[1,{"b":"c"}],"d":null}`: 6, `[]`: 2} {
		if n := Values([]byte(text)); n != want {
			t.Errorf("%s has %d values, want %d", text, n, want)
		}
	}
}

// TestScanningCostsNothing: a stranger chooses how many members there are.
func TestScanningCostsNothing(t *testing.T) {
	object := []byte(`{"a":0` + strings.Repeat(`,"b":[]`, 10_000) + `}`)
	array := []byte(`[0` + strings.Repeat(",0", 10_000) + `]`)
	if n := testing.AllocsPerRun(10, func() {
		Member(object, "a")
		for range Items(array) {
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzScan holds Members and Items against encoding/json.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":1,"\u0041":{"b":[]}}`, `[1,"x",{"a":null}]`, `{`, `{"a"`, `{"a":`, `"`, `{"a":"\`, ` [ ] `, `{"a" 1}`, `{"0`, `{"a":[true,false,null,-1.5e9,"\u00e9",{}],"a":{"b":[]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		members := map[string]string{}
		for name, value := range Members(text) {
			members[string(name)] = string(value)
		}
		var items []string
		for item := range Items(text) {
			items = append(items, string(item))
		}
		tree := Tree(text) // returns, whatever the text is
		if !json.Valid(text) {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(tree, want) && utf8.Valid(text) {
			t.Fatalf("%q is %v, not %v, %v", text, tree, want, err)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil {
			if len(object) != len(members) {
				t.Fatalf("%q has %d members, not %d", text, len(object), len(members))
			}
			for name, value := range object {
				if members[name] != string(bytes.TrimSpace(value)) && strings.ToValidUTF8(name, "") == name && !strings.Contains(name, "\uFFFD") {
					t.Fatalf("%q: %q is %q, not %q", text, name, value, members[name])
				}
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(text, &list) == nil {
			if len(list) != len(items) {
				t.Fatalf("%q has %d items, not %d", text, len(list), len(items))
			}
			for i := range list {
				if items[i] != string(bytes.TrimSpace(list[i])) {
					t.Fatalf("%q: item %d is %q, not %q", text, i, list[i], items[i])
				}
			}
		}
	})
}

func TestCheckBut(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`{"a":{"x":1},"b":[2],"c":3}`, true},
		{`{"a":{"x":1,"x":2},"b":[2]}`, true}, // whose fault somebody else finds
		{`{"a":{"x":1},"b":[2],"c":}`, false},
		{`{"a":{},"b":[],"a":{}}`, false},
		{`{"b":[2]}`, true},
		{`{"c":1}`, true},
		{`{"c":1}}`, false},
	} {
		text := []byte(c.text)
		if err := CheckBut(text, canon.Exact, Member(text, "a"), Member(text, "b")); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

func TestInsert(t *testing.T) {
	for text, want := range map[string]string{`{}`: `{"a":1}`, ` { "b":2}`: ` {"a":1, "b":2}`} {
		if got := string(Insert([]byte(text), 0, `"a":1`)); got != want {
			t.Errorf("%s became %s", text, got)
		}
	}
}
