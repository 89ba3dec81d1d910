package strictyaml

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

type sample struct {
	Name  string          `json:"name" required:"true"`
	Kind  string          `json:"kind" enum:"big,small" default:"big"`
	Pause Duration        `json:"pause" range:"0s,"`
	Count int             `json:"count" range:"1,10" default:"5"`
	On    *bool           `json:"on"`
	Part  *part           `json:"part"`
	Parts []part          `json:"parts"`
	Words []string        `json:"words"`
	Raw   json.RawMessage `json:"raw"`
	own   int             // no member
}

type part struct {
	Size  Size     `json:"size" range:"1KiB,1MiB" default:"2KiB"`
	Short Duration `json:"short" most:"long"`
	Long  Duration `json:"long"`
	Cert  string   `json:"cert" with:"key,the file of the key"`
	Key   string   `json:"key"`
	Codes []string `json:"codes" format:"digits"`
}

// load reads a sample.
func load(text string, noBlanks bool) (*sample, Errors) {
	r := NewReport("a.yaml")
	r.NoBlanks = noBlanks
	r.Formats = map[string]Format{"digits": func(text string) (fault, hint string) {
		if strings.Trim(text, "0123456789") == "" {
			return "", ""
		}
		return text + " has no digits only", "write 1"
	}}
	s := &sample{own: 1}
	v := reflect.ValueOf(s).Elem()
	FillDefaults(v)
	if r.Decode([]byte(text), v, Options{Bytes: 1 << 10, Depth: 8}) {
		r.Check("", v)
	}
	return s, r.Sorted()
}

func TestDecode(t *testing.T) {
	s, errs := load("name: a\non: false\npart: {}\nparts: [{size: 4KiB}, {}]\nraw: {a: [1, 2.50, null, \"x\"]}", true)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if s.Name != "a" || s.Kind != "big" || s.Count != 5 || s.On == nil || *s.On || s.Part == nil || len(s.Parts) != 2 ||
		s.Parts[0].Size != 4096 || s.Parts[1].Size != 2048 || string(s.Raw) != `{"a":[1,2.50,null,"x"]}` {
		t.Errorf("%+v, raw %s", s, s.Raw)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		noBlanks   bool
		want       string
	}{
		{"nothing is said of a file without mistakes", "name: a", false, ""},
		{"what is missing is missing at the section", "kind: small", false, `a.yaml:1:1: name: name is missing`},
		{"what is empty is not missing", "name: ''", false, `a.yaml:1:7: name: name is empty`},
		{"a misspelt name is not missing too", "nmae: a", false, `a.yaml:1:1: nmae: there is no setting "nmae"; did you mean name?`},
		{"a name counts once", "name: a\nname: b", false, `a.yaml:2:1: name: name is given twice, first in line 1; keep one of them`},
		{"a name counts once in JSON too", "name: a\nraw: {b: 1, b: 2}", false, `a.yaml:2:13: raw.b: b is given twice, first in line 2; keep one of them`},
		{"names in JSON are text", "name: a\nraw: {1: 2}", false, `a.yaml:2:7: raw.1: a name in JSON is text; write it in quotes`},
		{"numbers in JSON are those of JSON", "name: a\nraw: .inf", false, `a.yaml:2:6: raw: this has no JSON form; write text in quotes and numbers in decimal digits`},
		{"JSON is no way around what is not supported", "name: a\nraw: [&x 1, *x]", false,
			"a.yaml:2:7: raw[0]: anchors (&) are not supported; write the value itself\na.yaml:2:13: raw[1]: aliases (*) are not supported; write the value itself"},
		{"all are found at once", "name: a\nkind: bgi\npause: -1s\ncount: 11\nparts: [{size: 1}, 7]", false,
			`a.yaml:2:7: kind: "bgi" is not one of big, small; did you mean big?
a.yaml:3:8: pause: -1s is below 0s
a.yaml:4:8: count: 11 is not between 1 and 10
a.yaml:5:16: parts[0].size: 1 is not between 1KiB and 1MiB
a.yaml:5:20: parts[1]: this is a single value, not names with values below it; write {size: …}; the names here are size, short, long, cert, key, codes`},
		{"members are held against each other", "name: a\npart:\n  short: 2s\n  long: 1s\n  cert: c", false,
			"a.yaml:3:10: part.short: 2s is longer than the long of 1s\na.yaml:5:9: part.cert: cert has no key; add key, the file of the key"},
		{"and those that are given alone or together are right", "name: a\npart: {short: 2s, cert: c, key: k}", false, ""},
		{"a text has its format", "name: a\npart: {codes: ['1', x, '', '22']}", false,
			"a.yaml:2:21: part.codes[1]: x has no digits only; write 1\na.yaml:2:24: part.codes[2]: item is empty"},
		{"an item has a value", "name: a\nwords: [b, '', ~]", false, "a.yaml:2:12: words[1]: item is empty\na.yaml:2:16: words[2]: item 2 of words has no value"},
		{"a section may be all comments", "name: a\nparts:\n  # - size: 1KiB\n", false, ""},
		{"unless blanks are refused", "name: a\nwords:\nkind: ''", true, `a.yaml:2:1: words: words has no value
a.yaml:3:7: kind: "" is not one of big, small`},
		{"a section that is asked for by its name alone is none", "name: a\npart:", false, `a.yaml:2:1: part: part has no value`},
		{"a file may not be longer than it may", "name: " + strings.Repeat("a", 1<<10), false, `a.yaml:1:1: the file has 1030 bytes, more than 1024`},
		{"nor deeper", "raw: [[[[[[[[[1]]]]]]]]]", false, `a.yaml:1:14: more than 8 nested lists and mappings`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, errs := load(c.text, c.noBlanks); errs.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", errs.Error(), c.want)
			}
		})
	}
}

func TestCopy(t *testing.T) {
	on := true
	from := &sample{On: &on, Part: &part{Size: 1}, Parts: []part{{Size: 2}}, Words: []string{"a"}, own: 3}
	to := Copy(reflect.ValueOf(from).Elem()).Addr().Interface().(*sample)
	if !reflect.DeepEqual(from, to) {
		t.Errorf("%+v, want %+v", to, from)
	}
	*to.On, to.Part.Size, to.Parts[0].Size, to.Words[0] = false, 7, 7, "b"
	if !on || from.Part.Size != 1 || from.Parts[0].Size != 2 || from.Words[0] != "a" {
		t.Errorf("something is shared: %+v", from)
	}
}

func TestCheckOfValuesInGo(t *testing.T) {
	r := NewReport("registry")
	r.Check("items[0]", reflect.ValueOf(sample{Kind: "odd", Pause: Duration(-time.Second), Count: 1, Words: []string{""}}))
	want := "registry: items[0].name: name is missing\nregistry: items[0].kind: \"odd\" is not one of big, small\n" +
		"registry: items[0].pause: -1s is below 0s\nregistry: items[0].words[0]: item is empty"
	if got := r.List.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
