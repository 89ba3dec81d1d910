package ids

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/strictyaml"
)

// NewRegistry makes a registry of commands that you declare in Go. It checks them and fills in
// defaults like [Load]; it reads the JSON of schemas and of defaults as strictly as envelopes.
// The error is [Problems]: everything that is wrong, each with its path, such as
// "commands[2].window", and without a line.
//
// The commands are copied, so you may change them afterwards.
func NewRegistry(commands []Entry, opts LoadOptions) (*Registry, error) {
	rep := newReport(opts)
	reg := &Registry{Version: 1, Commands: make([]Entry, len(commands))}
	for i := range commands {
		at := fmt.Sprintf("commands[%d]", i)
		v := reflect.ValueOf(&reg.Commands[i]).Elem()
		v.Set(strictyaml.Copy(reflect.ValueOf(commands[i])))
		reg.Commands[i].schema = nil // the entry may come from another registry, with Args that have changed since
		rep.Check(at, v)
		canonical(rep, at+".args.schema", &reg.Commands[i].Args.Schema)
		for k := range reg.Commands[i].Args.Normalise {
			canonical(rep, fmt.Sprintf("%s.args.normalise[%d].default", at, k), &reg.Commands[i].Args.Normalise[k].Default)
		}
		// Report to the linter what the decoder would have left out of a file.
		for _, p := range rep.List {
			if strings.HasPrefix(p.Path, at+".") {
				p.Command = commands[i].Name()
			}
		}
	}
	l := &linter{Report: rep, known: opts.Bindings, inGo: true}
	l.registry(reg)
	return reg.checked(rep.List)
}

// canonical reads JSON as strictly as an envelope.
func canonical(rep *strictyaml.Report, path string, text *json.RawMessage) {
	if len(*text) == 0 {
		return
	}
	strict, err := canon.Canonicalize(*text, canon.Exact)
	if err != nil {
		rep.Add(path, "this is no strict JSON", "")
	}
	*text = strict
}
