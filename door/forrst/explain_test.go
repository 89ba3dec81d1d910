package forrst_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
)

func TestExplain(t *testing.T) {
	var runs atomic.Int64
	read := charging(semel.Operation{Class: semel.ReadOnly}, charge(&runs))
	read.Name = "payments.show"
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs)), read}})
	good := call("req_1", `{"b":1.0,"a":2}`, `{"key":"k","ttl":{"value":2,"unit":"day"}}`)
	for request, want := range map[string]string{
		good: `{"id":"req_1","function":"payments.charge","version":"1.0.0","operation":"payments.charge","key":"k","scope":"payments.charge@1.0.0","kept_for":{"value":2,"unit":"day"},"arguments":{"a":2,"b":1}}`,
		strings.Replace(call("req_1", `{}`, `{"key":"k"}`), `"version":"1.0.0",`, "", 1):                           `{"id":"req_1","function":"payments.charge","version":"1.0.0","operation":"payments.charge","key":"k","scope":"payments.charge@","kept_for":{"value":1,"unit":"day"},"arguments":{}}`,
		`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":"payments.show"}}`:            `{"id":"s","function":"payments.show","version":"1.0.0","operation":"payments.show"}`,
		`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":"urn:cline:forrst:fn:ping"}}`: `{"id":"s","function":"urn:cline:forrst:fn:ping"}`,
		strings.Replace(good, `"key":"k"`, `"key":"k k"`, 1): `{"id":"req_1","function":"payments.charge","version":"1.0.0","operation":"payments.charge","status":400,` +
			`"errors":[{"code":"INVALID_ARGUMENTS","message":"An idempotency key has 1 to 255 letters, digits and - _ : .","source":{"pointer":"/extensions/0/options/key"}}]}`,
		"x": `{"status":400,"errors":[{"code":"PARSE_ERROR","message":"Invalid JSON: a value expected","source":{"position":0}}]}`,
	} {
		got, err := json.Marshal(w.service.Explain([]byte(request)))
		if err != nil || string(got) != want {
			t.Errorf("%s:\n%s\n%s", request, got, want)
		}
	}
	if runs.Load() != 0 {
		t.Errorf("executed %d times", runs.Load())
	}
}
