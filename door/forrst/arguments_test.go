package forrst_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
)

const chargeSchema = `{"type":"object","required":["amount","currency"],"additionalProperties":false,"properties":{
	"amount":{"type":"integer","minimum":1},"currency":{"enum":["EUR","USD"]},"at":{"type":"string","format":"date-time"},
	"items":{"type":"array","maxItems":100,"items":{"type":"object","required":["a/b"]}}}}`

// declaring is payments.charge with a schema of its arguments.
func declaring(schema string, op semel.Operation, runs *atomic.Int64) forrst.Options {
	f := charging(op, charge(runs))
	f.Versions[0].Arguments = json.RawMessage(schema)
	return forrst.Options{Functions: []forrst.Function{f}}
}

// TestArgumentsThatDontFit: each fault has its place, nothing runs, and nothing is stored.
func TestArgumentsThatDontFit(t *testing.T) {
	var runs atomic.Int64
	w := newWorld(t, declaring(chargeSchema, semel.Operation{}, &runs))
	many := `{"amount":1,"currency":"EUR","items":[` + strings.Repeat(`{},`, 30) + `{}]}`
	for arguments, want := range map[string]string{
		`{}`:                                                                   "400 /call/arguments/amount required, /call/arguments/currency required",
		`{"amount":1}`:                                                         "422 /call/arguments/currency required",
		`{"amount":0,"currency":"EUR"}`:                                        "422 /call/arguments/amount minimum",
		`{"amount":"1","currency":"EUR"}`:                                      "422 /call/arguments/amount type",
		`{"amount":1.5,"currency":"EUR"}`:                                      "422 /call/arguments/amount type",
		`{"amount":1e2000,"currency":"EUR"}`:                                   "422 /call/arguments/amount ",
		`{"amount":1E-2000,"currency":"EUR"}`:                                  "422 /call/arguments/amount ",
		`{"amount":1,"currency":"euro"}`:                                       "422 /call/arguments/currency enum",
		`{"amount":1,"currency":"EUR","x~":1,"at":"now"}`:                      "400 /call/arguments/at format, /call/arguments/x~0 additionalProperties",
		`{"amount":1,"currency":"EUR","items":[{"a/b":1},{}]}`:                 "422 /call/arguments/items/1/a~1b required",
		`{"amount":1,"currency":"EUR","items":{}}`:                             "422 /call/arguments/items type",
		`{"amount":` + strings.Repeat("1", 1001) + `,"currency":"EUR"}`:        "422 /call/arguments/amount ",
		`{"amount":1,"currency":"EUR","items":[{"a/b":{"deep":[0,1e99999]}}]}`: "422 /call/arguments/items/0/a~1b/deep/1 ",
		many: "400 20 faults",
	} {
		name := arguments[:min(len(arguments), 60)]
		s := w.post(call("req_1", arguments, `{"key":"k"}`))
		var faults []string
		for _, e := range s.Errors {
			if e.Code != forrst.SchemaValidationFailed || e.Message == "" {
				t.Errorf("%s: %s", name, s.body)
			}
			constraint, _ := e.Details["constraint"].(string)
			faults = append(faults, e.Source.Pointer+" "+constraint)
		}
		got := fmt.Sprint(s.status, " ", strings.Join(slices.Sorted(slices.Values(faults)), ", "))
		if len(faults) > 5 {
			got = fmt.Sprint(s.status, " ", len(faults), " faults")
		}
		if got != want || s.data("retry") != nil || s.data("idempotency") != nil {
			t.Errorf("%s: %s\n%s", name, got, s.body)
		}
	}
	id := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: "payments.charge@1.0.0", Key: "k"}
	if rec, err := w.engine.Lookup(t.Context(), id.ID(semel.SharePrincipal)); !errors.Is(err, &semel.Error{Code: semel.CodeNotFound}) {
		t.Errorf("it left %+v, %v", rec, err)
	}
	if runs.Load() != 0 {
		t.Errorf("executed %d times", runs.Load())
	}
	w.post(call("req_2", `{"amount":1.0,"currency":"EUR","at":"2026-01-01T00:00:00Z","items":[]}`, `{"key":"k"}`)).want(t, 200, "", "processed")
}

// TestAKeyThatWasUsedBeforeTheSchema: what became of a call doesn't depend on a schema that
// came later.
func TestAKeyThatWasUsedBeforeTheSchema(t *testing.T) {
	clause.Proves(t, "FOR-DUP.1", "FOR-CONF.1", "FOR-PROC.1")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	w.post(call("req_1", `{"sum":1}`, `{"key":"done"}`)).want(t, 200, "", "processed")
	unknown := charging(semel.Operation{}, failing(&runs, func() error { return semel.Unknown(errors.New("no answer")) }))
	aborted := charging(semel.Operation{}, failing(&runs, func() error { return semel.Aborted(errors.New("no luck")) }))
	for key, f := range map[string]forrst.Function{"unknown": unknown, "aborted": aborted} {
		w.deploy(forrst.Options{Functions: []forrst.Function{f}})
		w.post(call("req_1", `{"sum":1}`, `{"key":"`+key+`"}`)).want(t, 500, forrst.InternalError, map[string]string{"aborted": "", "unknown": "processing"}[key])
	}

	w.deploy(declaring(chargeSchema, semel.Operation{}, &runs))
	s := w.post(call("req_2", `{"sum":1}`, `{"key":"done"}`))
	s.want(t, 200, "", "cached")
	if s.data("idempotency")["original_request_id"] != "req_1" {
		t.Error(s.body)
	}
	w.post(call("req_2", `{"sum":2}`, `{"key":"done"}`)).want(t, 409, forrst.IdempotencyConflict, "conflict")
	w.post(call("req_2", `{"sum":1}`, `{"key":"unknown"}`)).want(t, 409, forrst.IdempotencyProcessing, "processing")
	before := runs.Load()
	w.post(call("req_2", `{"sum":1}`, `{"key":"aborted"}`)).want(t, 400, forrst.SchemaValidationFailed, "")
	if runs.Load() != before {
		t.Error("executed with arguments that don't fit")
	}
	w.store.down.Store(true)
	w.post(call("req_3", `{"sum":1}`, `{"key":"done"}`)).want(t, 503, forrst.Unavailable, "")
}

// TestArgumentsOfReads: a function that only reads has a schema too.
func TestArgumentsOfReads(t *testing.T) {
	var runs atomic.Int64
	w := newWorld(t, declaring(chargeSchema, semel.Operation{Class: semel.ReadOnly}, &runs))
	const ask = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":"payments.charge","arguments":{"amount":1%s}}}`
	w.post(fmt.Sprintf(ask, "")).want(t, 422, forrst.SchemaValidationFailed, "")
	w.post(fmt.Sprintf(ask, `,"currency":"EUR"`)).want(t, 200, "", "")
	x := w.service.Explain(fmt.Appendf(nil, ask, ""))
	if x.Status != 422 || x.Errors[0].Source.Pointer != "/call/arguments/currency" {
		t.Errorf("%+v", x)
	}
	if runs.Load() != 1 {
		t.Errorf("executed %d times", runs.Load())
	}
}
