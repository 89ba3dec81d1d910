package ids

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/strictyaml"
)

// defaultTimeout is how long an upstream may take.
const defaultTimeout = 10 * time.Second

// defaultPerRecord limits duplicates of one record (IDS-XV.3).
var defaultPerRecord = RateEntry{PerSecond: 1, Burst: 20}

// Bounds of a registry file.
const (
	maxFile  = 4 << 20 // bytes
	maxDepth = 64      // nested lists and mappings
)

type (
	// Problem is one fault of a registry: its File, Line and Column, which count from 1 and
	// are empty for a registry in Go, see [NewRegistry]; the Path of the setting, such as
	// "commands[2].window"; the Command, if it belongs to one; a Message, and a Suggestion
	// what to write instead.
	Problem = strictyaml.Error
	// Problems lists everything that is wrong with a registry, in the order of the file or of
	// the commands.
	Problems = strictyaml.Errors
	// Duration is a time span, written in a registry as numbers with units, such as 90s, 1h30m
	// or 7d; a day has 24 hours.
	Duration = strictyaml.Duration
)

// LoadOptions say what to check a registry against. The zero value is fine.
type LoadOptions struct {
	// File is the name of the file in problems. Defaults to "registry".
	File string
	// Bindings are the functions that the registry may name. Nil: names aren't checked,
	// for programs that don't run the commands.
	Bindings *Bindings
}

// Load reads a registry in YAML (or JSON, which is a subset), checks it, and fills in the
// defaults. The error is [Problems]: everything that is wrong.
func Load(data []byte, opts LoadOptions) (*Registry, error) {
	rep := newReport(opts)
	rep.NoBlanks = true
	rep.ShowLines(data)
	reg := &Registry{}
	switch v := reflect.ValueOf(reg).Elem(); {
	case rep.Decode(data, v, strictyaml.Options{Bytes: maxFile, Depth: maxDepth}):
		if !rep.Faulty[""] {
			rep.Check("", v)
			l := &linter{Report: rep, known: opts.Bindings}
			l.registry(reg)
		}
	case len(rep.List) == 0:
		rep.Add("", "the file is empty", "begin with version: 1")
	}
	return reg.checked(rep.Sorted())
}

func newReport(opts LoadOptions) *strictyaml.Report {
	return strictyaml.NewReport(cmp.Or(opts.File, "registry"))
}

func (reg *Registry) checked(problems Problems) (*Registry, error) {
	if len(problems) > 0 {
		return nil, problems
	}
	reg.byName = map[string]*Entry{}
	for i := range reg.Commands {
		reg.byName[reg.Commands[i].Name()] = &reg.Commands[i]
	}
	return reg, nil
}

func (e *Entry) fill() {
	if e.Mutates = new(e.mutates()); *e.Mutates {
		e.Class = cmp.Or(e.Class, semel.Strict) // IDS-VI.2
	}
	e.Class = cmp.Or(e.Class, semel.ReadOnly)
	if e.Class != semel.Windowed {
		if e.Financial {
			e.Window = cmp.Or(e.Window, Duration(semel.DefaultFinancialWindow))
		}
		e.Window = cmp.Or(e.Window, Duration(semel.DefaultWindow))
	}
	if e.Financial || e.Critical {
		if *e.Mutates {
			e.Late = cmp.Or(e.Late, LateRefused)
		}
		e.Evidence = cmp.Or(e.Evidence, semel.EvidenceDurable) // IDS-XII.6
	}
	e.Late, e.Evidence = cmp.Or(e.Late, LateRuns), cmp.Or(e.Evidence, semel.EvidenceDecisions)
	e.Archive = cmp.Or(e.Archive, new(e.Financial))
	e.Binding.Principal = cmp.Or(e.Binding.Principal, BindActor)
	e.OnFailure = cmp.Or(e.OnFailure, semel.ReplayFailure)
	e.OnAbandoned = cmp.Or(e.OnAbandoned, semel.HoldAbandoned)
	e.Lease = cmp.Or(e.Lease, Duration(semel.DefaultLease))
	e.MaxWait = cmp.Or(e.MaxWait, Duration(semel.DefaultMaxWait))
	if e.PerRecord == (RateEntry{}) {
		e.PerRecord = defaultPerRecord
	}
	if e.Handler.URL != "" {
		e.Handler.Timeout = cmp.Or(e.Handler.Timeout, Duration(defaultTimeout))
	}
	if c := e.Confirmation; c != nil {
		c.TTL = cmp.Or(c.TTL, Duration(semel.MaxConfirmationTTL))
		c.MaxTries = cmp.Or(c.MaxTries, semel.DefaultConfirmationMaxTries)
	}
	if s := e.shield(semel.ShieldProviderKey); s != nil {
		s.Header = cmp.Or(s.Header, "Idempotency-Key")
	}
}

// BindingsOf returns bindings that have functions with these names, which do nothing, to check
// the names in a registry without its program. Without names it returns nil.
func BindingsOf(names []string) *Bindings {
	if len(names) == 0 {
		return nil
	}
	b := &Bindings{
		Handlers: map[string]Handler{}, StepUps: map[string]func(context.Context, semel.Call) error{},
		Reconcilers: map[string]semel.Reconciler{}, Compensators: map[string]semel.Compensator{},
	}
	for _, name := range names {
		b.Handlers[name], b.StepUps[name], b.Reconcilers[name], b.Compensators[name] = nil, nil, nil, nil
	}
	return b
}
