package clienttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// scenario is a row of steps. Steps stay JSON for the drivers, which read what they need.
type scenario struct {
	Name      string           `json:"name"`
	Operation string           `json:"operation"`
	Only      []string         `json:"only"`
	Steps     []map[string]any `json:"steps"`
}

// control is what a step does that isn't a driver's.
type control struct {
	Fault   *fault      `json:"fault"`
	Heal    bool        `json:"heal"`
	Restart bool        `json:"restart"`
	Settle  *settlement `json:"settle"`
}

type settlement struct {
	Outcome store.Disposition `json:"outcome"`
	Code    string            `json:"code"`
	Result  json.RawMessage   `json:"result"`
}

// TestScenarios runs one file of scenarios by the clients for Go, TypeScript and Python against
// one service. What they see, and how often the work runs, must be equal.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/scenarios.yaml")
	must(t, err)
	var loose any
	must(t, yaml.Unmarshal(text, &loose))
	var list []scenario
	into(t, loose, &list)
	tools(t)
	w := newWorld(t)
	w.drivers = []*driver{w.goDriver(t), w.program(t, "typescript", "node", "driver.mjs", built(t)), w.program(t, "python", "python3", "driver.py")}
	for i := range list {
		t.Run(list[i].Name, func(t *testing.T) { w.play(t, &list[i], fmt.Sprintf("%d/", i)) })
	}
	for _, d := range w.drivers {
		if d.proxy.fired == 0 || d.proxy.tokens > 0 {
			t.Errorf("%s: the network failed %d times, and a stranger got %d tokens", d.name, d.proxy.fired, d.proxy.tokens)
		}
	}
}

// play runs a scenario by all drivers, a step by all at once.
func (w *world) play(t *testing.T, sc *scenario, number string) {
	if len(sc.Steps) == 0 {
		t.Fatal("it has no steps")
	}
	saw := map[string][]any{}
	var mu sync.Mutex
	do := func(d *driver, what map[string]any) {
		if s := w.step(t, d, what, cmp.Or(sc.Operation, "plain"), number+"k"); s != nil {
			mu.Lock()
			defer mu.Unlock()
			saw[d.name] = append(saw[d.name], s)
		}
	}
	for _, what := range append([]map[string]any{{"do": "client", "token": "shop"}}, sc.Steps...) {
		if what["restart"] == true {
			w.stop()
			w.start(t)
			continue
		}
		var all sync.WaitGroup
		for _, d := range w.drivers {
			if len(sc.Only) == 0 || slices.Contains(sc.Only, d.name) {
				all.Go(func() { do(d, what) })
			}
		}
		all.Wait()
	}
	var of string // whose transcript the others must have
	for _, d := range w.drivers {
		d.proxy.set(nil)
		switch one := saw[d.name]; {
		case one == nil:
		case of == "":
			of = d.name
		case !reflect.DeepEqual(one, saw[of]):
			t.Errorf("%s sees %s\n%s sees %s", of, lines(saw[of]), d.name, lines(one))
		}
	}
}

// step does one step by one driver, and returns what it sees of it.
func (w *world) step(t *testing.T, d *driver, what map[string]any, operation, key string) map[string]any {
	var c control
	into(t, what, &c)
	switch {
	case c.Fault != nil:
		d.proxy.set(c.Fault)
		return nil
	case c.Heal:
		d.proxy.set(nil)
		return nil
	case c.Settle != nil:
		w.settle(t, d.record, c.Settle)
		return nil
	}
	full := map[string]any{"operation": operation, "payload": map[string]any{"amount": 12}}
	maps.Copy(full, what)
	full["key"] = key
	if own, ok := what["key"].(string); ok {
		full["key"] = key + own
	}
	if token, ok := what["token"].(string); ok {
		full["token"] = token + secret
	}
	delete(full, "sees")
	saw := d.perform(t, full)
	d.record, _ = saw["record"].(string)
	strip(saw)
	if sees := what["sees"]; sees != nil && !includes(saw, same(t, sees)) {
		t.Errorf("%s: of %v it sees %v", d.name, what, saw)
	}
	return saw
}

func (w *world) settle(t *testing.T, record string, s *settlement) {
	id, err := store.DecodeID(record)
	if err != nil {
		t.Errorf("there is no record to settle: %v", err)
		return
	}
	how := semel.Settlement{Outcome: s.Outcome, Result: semel.Result{Data: s.Result}}
	if s.Code != "" {
		how.Failure = &store.Failure{Code: s.Code, Message: "an operator says so"}
	}
	if _, err := w.operator.Settle(t.Context(), id, how, "the test says so"); err != nil {
		t.Error(err)
	}
}

// strip removes names of records, which differ.
func strip(saw map[string]any) {
	delete(saw, "record")
	list, _ := saw["inner"].([]any)
	for _, inner := range list {
		strip(inner.(map[string]any))
	}
}

// includes reports whether a value has all that is wanted; an object may have more members.
func includes(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		for name, v := range want {
			ok = ok && includes(got[name], v)
		}
		return ok
	case []any:
		got, ok := got.([]any)
		return ok && slices.EqualFunc(got, want, includes)
	}
	return reflect.DeepEqual(got, want)
}

// same returns a value as its JSON form is read.
func same(t *testing.T, v any) (out any) {
	into(t, v, &out)
	return out
}

func into(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	must(t, err)
}

func lines(saw []any) (text string) {
	for _, s := range saw {
		line, _ := json.Marshal(s)
		text += "\n  " + string(line)
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
