package webhook

import (
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Machine is the states that a payment can go through. Make one by [LoadMachine] or
// [CardMachine]; it doesn't change afterwards.
type Machine struct {
	// Name of the machine, which names the states in the store.
	Name string `json:"name" required:"true"`
	// State of a payment that has no events yet.
	Initial string `json:"initial" required:"true"`
	// What may happen, and where it leads.
	Transitions []Transition `json:"transitions" required:"true"`
	// How long the store has the state of a payment after its last event.
	Keep strictyaml.Duration `json:"keep" default:"400d" range:"1d,3650d"`

	reach map[string]map[string]bool // the states that can follow a state, in any number of steps
}

// Transition is something that may happen in some states of a payment.
type Transition struct {
	// Name of what happened, as sources name it.
	On string `json:"on" required:"true"`
	// States in which it may happen.
	From []string `json:"from" required:"true" single:"true"`
	// State that it leads to.
	To string `json:"to" required:"true"`
}

//go:embed machines/card.yaml
var card []byte

// CardMachine returns the usual life of a card payment: authorized, captured or canceled,
// refunded, disputed.
func CardMachine() *Machine {
	m, err := LoadMachine("card.yaml", card)
	if err != nil {
		panic(err) // it is embedded
	}
	return m
}

// LoadMachine reads a machine in YAML, like [Load].
func LoadMachine(file string, data []byte) (*Machine, error) {
	m := &Machine{}
	if err := load(file, data, m, m.compile); err != nil {
		return nil, err
	}
	return m, nil
}

// load reads a file into a struct and checks that.
func load(file string, data []byte, into any, check func(*strictyaml.Report)) error {
	rep := strictyaml.NewReport(file)
	rep.NoBlanks = true
	rep.ShowLines(data)
	v := reflect.ValueOf(into).Elem()
	strictyaml.FillDefaults(v)
	switch {
	case rep.Decode(data, v, strictyaml.Options{Bytes: maxFile, Depth: maxDepth}):
		rep.Check("", v)
		check(rep)
	case len(rep.List) == 0:
		rep.Add("", "the file is empty", "begin with name:")
	}
	if errs := rep.Sorted(); len(errs) > 0 {
		return errs
	}
	return nil
}

func (m *Machine) compile(rep *strictyaml.Report) {
	if m.Name != "" && !sourceName.MatchString(m.Name) {
		rep.Add("name", fmt.Sprintf("%q is not a name", m.Name), "write small letters, digits and -")
	}
	m.reach = map[string]map[string]bool{m.Initial: {m.Initial: true}}
	first := map[string]string{}
	for i, t := range m.Transitions {
		for k, from := range t.From {
			at := fmt.Sprintf("transitions[%d].from[%d]", i, k)
			if other, twice := first[t.On+" "+from]; twice {
				rep.Add(at, fmt.Sprintf("%s says already where %s leads from %s", other, t.On, from), "keep one of them")
			}
			first[t.On+" "+from] = fmt.Sprintf("transitions[%d]", i)
			m.reach[from] = map[string]bool{from: true}
		}
		m.reach[t.To] = map[string]bool{t.To: true}
	}
	for grown := true; grown; { // few states, each visited a few times
		grown = false
		for _, t := range m.Transitions {
			for _, from := range t.From {
				for next := range m.reach[t.To] {
					grown = grown || !m.reach[from][next]
					m.reach[from][next] = true
				}
			}
		}
	}
	for i, t := range m.Transitions {
		for k, from := range t.From {
			if !m.reach[m.Initial][from] {
				rep.Add(fmt.Sprintf("transitions[%d].from[%d]", i, k), fmt.Sprintf("no payment gets into the state %s", from),
					"the states are "+strings.Join(m.States(), ", "))
			}
		}
	}
}

// States returns the states that a payment can get into, sorted.
func (m *Machine) States() []string {
	return slices.Sorted(maps.Keys(m.reach[m.Initial]))
}

// knows reports whether there is a transition of this name.
func (m *Machine) knows(on string) bool {
	return slices.ContainsFunc(m.Transitions, func(t Transition) bool { return t.On == on })
}

// Step is what an event means to its payment.
type Step string

// The steps.
const (
	Applied Step = "applied" // the payment is in the event's state now
	Late    Step = "late"    // it has been in or past that state; it keeps its own
	Waiting Step = "waiting" // something that has to happen first hasn't been reported yet
	Refused Step = "refused" // it can't happen to this payment any more
)

// step says what an event means to a payment that has been in these states, and is in the last
// of them. Webhooks come in any order, so an event that doesn't fit is late if it would have
// fitted earlier and leads to where the payment is; it waits if the payment can still reach a
// state where it fits; otherwise it is refused.
func (m *Machine) step(been []string, on string) (to string, s Step) {
	state := been[len(been)-1]
	s = Refused
	for _, t := range m.Transitions {
		if t.On != on {
			continue
		}
		for _, from := range t.From {
			switch {
			case from == state:
				return t.To, Applied
			case slices.Contains(been, from) && m.reach[t.To][state]:
				s = Late
			case s == Refused && m.reach[state][from]:
				s = Waiting
			}
		}
	}
	return state, s
}
