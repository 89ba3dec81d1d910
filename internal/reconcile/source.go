package reconcile

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/internal/strictyaml"
)

// Source describes how to ask a vendor about a call, and what the answers prove.
type Source struct {
	// Name of the source, such as stripe.
	Name string `json:"name" required:"true"`
	// Pages of the vendor's documentation that the file rests on.
	About []string `json:"about" required:"true" single:"true"`
	// What the question is about. The settings give them by name.
	Values []Value `json:"values" required:"true"`
	// Address of the API, such as https://api.stripe.com. Only fixed values may stand in it.
	URL string `json:"url,omitzero"`
	// Request for a token that the question needs, if the secret itself isn't one.
	Token Token `json:"token,omitzero"`
	// The question. It must change nothing.
	Ask Request `json:"ask,omitzero"`
	// The question is a query for a database, which the settings give. Its rows are judged as JSON: {"rows": [{"column": "text"}]}.
	Database bool `json:"database,omitzero"`
	// What answers prove. The first one counts whose status and conditions all apply; an answer that none describes proves nothing.
	Answers []Answer `json:"answers" required:"true"`
	// How long a call may be on its way, or done and not found yet. Before that, absent proves nothing.
	AbsentAfter strictyaml.Duration `json:"absent_after,omitzero" range:"1s,365d"`
	// What duplicates of a call that was done get to know, by name: places in the answer.
	Result []string `json:"result,omitempty" pairs:"true"`
}

// Value is something that the question is about.
type Value struct {
	// Name, which stands in braces elsewhere in the file.
	Name string `json:"name" required:"true" unique:"give it another name"`
	// Meaning of the value, for people.
	About string `json:"about" required:"true"`
	// Where it comes from if the settings don't say, such as {key}.
	Default string `json:"default,omitzero"`
	// Regular expression for the whole value. Any other value could mean something else in the question, and nobody gets to see it.
	Form string `json:"form" default:"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"`
	// It is the same for all calls.
	Fixed bool `json:"fixed,omitzero"`

	form *regexp.Regexp
}

// Request is a question over HTTP. Values stand in it in braces, and {secret}, {basic} for the secret in
// base64, and {token} in headers.
type Request struct {
	// Method of the request.
	Method string `json:"method" default:"GET" enum:"GET,POST"`
	// Path below the address.
	Path string `json:"path,omitzero"`
	// Parameters by name.
	Query []string `json:"query,omitempty" pairs:"true"`
	// Headers by name.
	Headers []string `json:"headers,omitempty" pairs:"true"`
	// Body of a POST: JSON, in which values stand inside of strings, or a form without values.
	Body string `json:"body,omitzero"`
}

// Token is a request for a token, and where the answer has it.
type Token struct {
	Request `yaml:",inline"`
	// Place of the token in the answer, such as json:/access_token.
	From string `json:"from,omitzero" with:"path,where it comes from"`
}

// Answer says what an answer proves.
type Answer struct {
	// done: the call took effect. refused: it did not, and never will. absent: there is no trace of it, so that after absent_after it can run again.
	Proves string `json:"proves" required:"true" enum:"done,refused,absent,nothing"`
	// Status of the answer.
	Status int `json:"status" default:"200" range:"200,599"`
	// Conditions that all apply, such as json:/data/0/status=succeeded.
	When []string `json:"when,omitempty" single:"true"`
}

//go:embed sources/*.yaml
var files embed.FS

// Sources returns the names of the built-in sources, sorted.
func Sources() []string {
	names, _ := fs.Glob(files, "sources/*.yaml") // the pattern is valid
	for i, name := range names {
		names[i] = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return names
}

// maxFile is the longest file of a source, in bytes, and maxDepth how deep it may nest.
const (
	maxFile  = 64 << 10
	maxDepth = 16
)

// Read reads a source: a built-in one by its name, or a file.
func Read(name string) (*Source, error) {
	if strings.ContainsAny(name, `/\`) || filepath.Ext(name) != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return Load(name, data)
	}
	data, err := files.ReadFile(path.Join("sources", name+".yaml"))
	if err != nil {
		hint := cmp.Or(strictyaml.DidYouMean(name, Sources()), "the sources are "+strings.Join(Sources(), ", "))
		return nil, fmt.Errorf("there is no source %q; %s", name, hint)
	}
	return Load(name+".yaml", data)
}

// Load reads a source in YAML. The error lists everything that is wrong; file is the name in it.
func Load(file string, data []byte) (*Source, error) {
	s := &Source{}
	rep := strictyaml.NewReport(file)
	rep.NoBlanks = true
	rep.ShowLines(data)
	v := reflect.ValueOf(s).Elem()
	strictyaml.FillDefaults(v)
	if rep.Decode(data, v, strictyaml.Options{Bytes: maxFile, Depth: maxDepth}) {
		if rep.Check("", v); len(rep.List) == 0 {
			s.check(rep)
		}
	} else if len(rep.List) == 0 {
		rep.Add("", "the file is empty", "begin with name:")
	}
	if errs := rep.Sorted(); len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

// check finds what the tags can't say.
func (s *Source) check(rep *strictyaml.Report) {
	var fixed, all []string
	for i := range s.Values {
		v, at := &s.Values[i], fmt.Sprintf("values[%d]", i)
		var err error
		if v.form, err = regexp.Compile(`^(?:` + v.Form + `)$`); err != nil {
			rep.Add(at+".form", err.Error(), "")
		}
		if all = append(all, v.Name); v.Fixed {
			fixed = append(fixed, v.Name)
		}
		for _, name := range names(v.Default) {
			if !ofCall(name) {
				rep.Add(at+".default", fmt.Sprintf("a record has no {%s}", name), "write such as {key}")
			}
		}
	}
	known := func(at, text string, allowed []string) {
		for _, name := range names(text) {
			if !slices.Contains(allowed, name) {
				rep.Add(at, fmt.Sprintf("nothing here is called {%s}", name), "these are: "+strings.Join(allowed, ", "))
			}
		}
	}
	known("url", s.URL, fixed)
	secrets := append(slices.Clone(all), "secret", "basic")
	s.Token.check("token", known, nil, secrets)
	s.Ask.check("ask", known, all, append(secrets, "token"))
	if (s.Ask.Path != "") == s.Database {
		rep.Add("ask", "a source has either ask with a path, or database: true", "")
	}
	for i, a := range s.Answers {
		for k, text := range a.When {
			at := fmt.Sprintf("answers[%d].when[%d]", i, k)
			known(at, text, all)
			if _, err := selector.ParseCondition(fill(text, sample, nil)); err != nil {
				rep.Add(at, err.Error(), "write such as json:/data/0/status=succeeded")
			}
		}
		if len(a.When) == 0 && a.Proves != "nothing" {
			rep.Add(fmt.Sprintf("answers[%d]", i), "a status alone proves nothing: anything in between may have said it", "add when")
		}
		if a.Proves == "absent" && s.AbsentAfter == 0 {
			rep.Add("absent_after", "absent proves nothing without a time", "write how long a call may be on its way or not found yet")
		}
	}
	for i, text := range append(slices.Clone(s.Result), "token="+cmp.Or(s.Token.From, "json:/access_token")) {
		if _, err := selector.Parse(text[strings.IndexByte(text, '=')+1:], []selector.Source{selector.JSON}); err != nil {
			rep.Add(fmt.Sprintf("result[%d]", i), err.Error(), "write such as json:/id")
		}
	}
}

// check reports names that nothing is called by.
func (r *Request) check(at string, known func(at, text string, allowed []string), values, secrets []string) {
	known(at+".path", r.Path, values)
	known(at+".body", r.Body, values)
	known(at+".query", strings.Join(r.Query, "\n"), values)
	known(at+".headers", strings.Join(r.Headers, "\n"), secrets)
}

var placeholder = regexp.MustCompile(`\{([a-z_]+(?::[A-Za-z0-9_.-]+)?)\}`)

// names lists the names in braces.
func names(text string) (list []string) {
	for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
		list = append(list, found[1])
	}
	return list
}

// fill puts values in the place of their names. escape makes each fit; nil takes it as it is.
func fill(text string, value func(name string) string, escape func(string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		v := value(found[1 : len(found)-1])
		if escape != nil {
			v = escape(v)
		}
		return v
	})
}

func sample(string) string { return "x" }
