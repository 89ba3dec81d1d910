package forrst_test

import (
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
)

// FuzzRequests: whatever comes gets one answer of Forrst, and what is refused as
// malformed is not executed.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		call("req_1", `{"amount":1}`, `{"key":"k"}`),
		call("req_1", `{}`, `{"key":"k","ttl":{"value":1,"unit":"day"}}`),
		`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":"urn:cline:forrst:fn:describe","arguments":{"function":"payments.charge"}}}`,
		`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":"payments.charge"},"extensions":[{"urn":"urn:forrst:ext:tracing"}]}`,
		`[]`, `{"id":"\u0000"}`, `{"id":`, `nul`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var runs atomic.Int64
		w := serving(t, semel.Operation{}, charge(&runs))
		s := w.post(body)
		if (s.code() == "") != (s.status == 200) || s.status >= 500 {
			t.Errorf("%d %s", s.status, s.body)
		}
		if s.code() != "" && runs.Load() != 0 {
			t.Errorf("executed, and refused with %s", s.body)
		}
		if s.code() == forrst.ParseError && s.Errors[0].Source.Position == nil {
			t.Errorf("no position: %s", s.body)
		}
	})
}
