package strictyaml

import "fmt"

// Kind is the kind of place that a setting came from.
type Kind string

// The kinds, from the weakest to the strongest.
const (
	FromDefault Kind = "default"
	FromFile    Kind = "file"
	FromEnv     Kind = "env"
	FromFlag    Kind = "flag"
)

// Origin says where a setting came from.
type Origin struct {
	Kind Kind `json:"kind"`
	// File, Line and Column are set for settings from the file.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Name is the variable or the flag, or what the default depends on.
	Name string `json:"name,omitempty"`
}

// String returns, for instance, "default", "semel.yaml:3:12", "env SEMEL_STORE_URL" or "flag
// --store".
func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		return fmt.Sprintf("%s:%d:%d", o.File, o.Line, o.Column)
	case FromEnv:
		return "env " + o.Name
	case FromFlag:
		return "flag --" + o.Name
	}
	if o.Name != "" {
		return "default (" + o.Name + ")"
	}
	return "default"
}

// Origins says for every setting where it came from.
type Origins struct {
	// At has the origins of written settings, by path.
	At map[string]Origin

	report *Report // the report that found them
}

// Blame makes an error for a setting that turned out wrong after the file was read, at the
// place that the setting came from, like [Report.Add].
func (o *Origins) Blame(path, message, hint string) *Error {
	r := &Report{Origins: o, Faulty: map[string]bool{}}
	if o.report != nil {
		r.File, r.lines, r.inFile = o.report.File, o.report.lines, o.report.inFile
	}
	r.Add(path, message, hint)
	return r.List[0]
}

// Of returns the origin of a path. A setting that wasn't written is a default.
func (o *Origins) Of(path string) Origin {
	if origin, ok := o.At[path]; ok {
		return origin
	}
	return Origin{Kind: FromDefault}
}

// Written reports whether anybody set the setting.
func (o *Origins) Written(path string) bool {
	return o.Of(path).Kind != FromDefault
}

// sections returns the paths of sections with anything set in them.
func (o *Origins) sections() map[string]bool {
	found := map[string]bool{}
	for at := range o.At {
		for at = Parent(at); at != "" && !found[at]; at = Parent(at) {
			found[at] = true
		}
	}
	return found
}
