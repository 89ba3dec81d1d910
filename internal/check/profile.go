package check

import (
	"cmp"
	"embed"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// files are the requirements. A file isn't edited once it is released: a new revision of a
// contract gets a file of its own, so that a verdict means the same for good.
//
//go:embed requirements
var files embed.FS

// profile is a contract as its file has it.
type profile struct {
	Name     string `json:"name" required:"true"`
	Document string `json:"document" required:"true"`
	// Quoted keys are structured strings.
	Quoted bool `json:"quoted"`
	// Missing says what a request without a key gets; Conflict and InFlight are the statuses of
	// refusals; Rejected and Failed say what the retry of a 4xx and of a 5xx gets.
	Missing  string `json:"missing" enum:"refuse,run,any" default:"any"`
	Conflict []int  `json:"conflict"`
	InFlight []int  `json:"in_flight"`
	Rejected string `json:"rejected" enum:"kept,fresh,any" default:"any"`
	Failed   string `json:"failed" enum:"kept,fresh,any" default:"any"`
	Marker   string `json:"marker"` // the header of a replay
	// Requirements have their sentences in common.yaml, and in the file of a contract the
	// paragraphs on which they rest.
	Requirements []requirement `json:"requirements"`

	byID map[string]requirement
}

// requirement is one sentence that a service keeps or doesn't.
type requirement struct {
	ID    string `json:"id" required:"true"`
	Level string `json:"level" enum:"must,should"`
	On    string `json:"on"`
	Text  string `json:"text"`
}

// readProfile reads an embedded file.
func readProfile(name string) (*profile, error) {
	data, err := files.ReadFile("requirements/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return parseProfile(name, data)
}

func parseProfile(name string, data []byte) (*profile, error) {
	p, r := new(profile), strictyaml.NewReport(name)
	v := reflect.ValueOf(p).Elem()
	strictyaml.FillDefaults(v)
	r.Decode(data, v, strictyaml.Options{Bytes: 1 << 20, Depth: 8})
	r.Check("", v)
	if errs := r.Sorted(); len(errs) > 0 {
		return nil, errs
	}
	p.byID = map[string]requirement{}
	for _, r := range p.Requirements {
		p.byID[r.ID] = r
	}
	return p, nil
}

// Profiles are the names of the contracts, with their revisions.
func Profiles() []string {
	return []string{"acp-2026-04-17", "adyen-v1", "ietf-07", "stripe-v1", "ucp-2026-08"}
}

// profileByName finds a contract, of several revisions the last.
func profileByName(name string) (*profile, error) {
	name = cmp.Or(name, "ietf")
	names := slices.DeleteFunc(Profiles(), func(n string) bool { return n != name && !strings.HasPrefix(n, name+"-") })
	if len(names) == 0 {
		return nil, wrong("there is no profile %q; there are %s", name, strings.Join(Profiles(), ", "))
	}
	all, err := readProfile("common")
	p, errHere := readProfile(names[len(names)-1])
	if err := errors.Join(err, errHere); err != nil {
		return nil, err
	}
	p.byID = all.byID
	for _, here := range p.Requirements {
		r := p.byID[here.ID]
		r.On = strings.TrimPrefix(r.On+"; "+p.Document+", "+here.On, "; ")
		if here.Level != "" {
			r.Level = here.Level
		}
		p.byID[here.ID] = r
	}
	return p, nil
}
