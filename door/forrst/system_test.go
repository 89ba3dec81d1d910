package forrst_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
)

// system calls a system function.
func (w *world) system(function, arguments string) *said {
	return w.post(fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"s","call":{"function":%q,"arguments":%s}}`, function, arguments))
}

func TestPingAndHealth(t *testing.T) {
	var broken atomic.Bool
	w := newWorld(t, forrst.Options{
		Functions: []forrst.Function{charging(semel.Operation{}, charge(new(atomic.Int64)))},
		Components: map[string]func(context.Context) error{"bank_api": func(context.Context) error {
			if broken.Load() {
				return errors.New("the password is wrong")
			}
			return nil
		}},
	})
	health := func(arguments string, status int) map[string]any {
		t.Helper()
		var found map[string]any
		for _, name := range []string{"urn:cline:forrst:fn:health", "urn:cline:forrst:ext:diagnostics:fn:health"} {
			s := w.system(name, arguments)
			s.want(t, status, "", "")
			if err := json.Unmarshal(s.Result, &found); err != nil || found["timestamp"] == nil || strings.Contains(s.body, "password") {
				t.Fatal(s.body)
			}
		}
		return found
	}
	for _, name := range []string{"urn:cline:forrst:fn:ping", "urn:cline:forrst:ext:diagnostics:fn:ping"} {
		s := w.system(name, "{}")
		s.want(t, 200, "", "")
		if !strings.Contains(s.body, `"result":{"status":"healthy","timestamp":"`) {
			t.Error(s.body)
		}
	}
	if h := health(`{}`, 200); h["status"] != "healthy" || len(h["components"].(map[string]any)) != 3 {
		t.Error(h)
	}
	broken.Store(true)
	h := health(`{}`, 503)
	if bank := h["components"].(map[string]any)["bank_api"].(map[string]any); h["status"] != "unhealthy" || bank["status"] != "unhealthy" || bank["message"] == "" {
		t.Error(h)
	}
	if h := health(`{"component":"self","include_details":false}`, 200); h["status"] != "healthy" || h["components"] != nil {
		t.Error(h)
	}
	w.system("urn:cline:forrst:fn:health", `{"component":"moon"}`).want(t, 404, forrst.NotFound, "")
	for arguments, at := range map[string]string{`{"component":1}`: "component", `{"componnt":"self"}`: "componnt"} {
		s := w.system("urn:cline:forrst:fn:health", arguments)
		s.want(t, 400, forrst.InvalidArguments, "")
		if p := s.Errors[0].Source.Pointer; p != "/call/arguments/"+at {
			t.Error(s.body)
		}
	}
}

func TestDiscovery(t *testing.T) {
	show := charging(semel.Operation{Class: semel.ReadOnly}, charge(new(atomic.Int64)))
	show.Name = "payments.show"
	pay := forrst.Function{
		Name: "payments.charge", Description: "Charges a card", SideEffects: []string{"create"},
		Versions: []forrst.Version{
			{Version: "2.0.0-beta.1", Run: charge(new(atomic.Int64)), Description: "With tips"},
			{Version: "1.0.0", Run: charge(new(atomic.Int64)), Arguments: json.RawMessage(`{"type":"object"}`)},
		},
	}
	w := newWorld(t, forrst.Options{Service: "payments-api", Functions: []forrst.Function{show, pay}})
	for _, prefix := range []string{"urn:cline:forrst:fn:", "urn:cline:forrst:ext:discovery:fn:"} {
		for call, want := range map[[2]string]string{
			{"capabilities", `{}`}: `{"service":"payments-api","protocol_versions":["0.1.0"],"extensions":[` +
				`{"urn":"urn:forrst:ext:idempotency","documentation":"urn:forrst:ext:idempotency"},{"urn":"urn:forrst:ext:retry","documentation":"urn:forrst:ext:retry"}],` +
				`"functions":["payments.charge","payments.show"],"limits":{"max_request_bytes":1048576,"default_deadline":{"value":1,"unit":"minute"}}}`,
			{"describe", `{"function":"payments.charge"}`}: `{"function":"payments.charge","description":"Charges a card","side_effects":["create"],"versions":[` +
				`{"version":"1.0.0","stability":"stable","schema":{"arguments":{"type":"object"}}},{"version":"2.0.0-beta.1","stability":"beta","description":"With tips"}],"recommended_version":"1.0.0"}`,
			{"describe", `{"function":"payments.charge","version":"1.0.0","include_schema":false}`}: `{"function":"payments.charge","description":"Charges a card","side_effects":["create"],` +
				`"versions":[{"version":"1.0.0","stability":"stable"}],"recommended_version":"1.0.0"}`,
			{"describe", `{"function":"payments.show"}`}: `{"function":"payments.show","side_effects":[],"versions":[{"version":"1.0.0","stability":"stable","extensions":{"excluded":["urn:forrst:ext:idempotency"]}}],"recommended_version":"1.0.0"}`,
		} {
			s := w.system(prefix+call[0], call[1])
			s.want(t, 200, "", "")
			if string(s.Result) != want {
				t.Errorf("%s %s:\n%s\n%s", call[0], call[1], s.Result, want)
			}
		}
	}
	w.system("urn:cline:forrst:fn:describe", `{}`).want(t, 400, forrst.InvalidArguments, "")
	w.system("urn:cline:forrst:fn:describe", `{"function":"x"}`).want(t, 404, forrst.FunctionNotFound, "")
	w.system("urn:cline:forrst:fn:describe", `{"function":"payments.show","version":"9.0.0"}`).want(t, 404, forrst.VersionNotFound, "")
	keyed := strings.Replace(call("r", "{}", `{"key":"k"}`), "payments.charge", "urn:cline:forrst:fn:ping", 1)
	w.post(keyed).want(t, 400, forrst.ExtensionNotApplicable, "")
	w.post(strings.Replace(strings.Replace(keyed, `"version":"1.0.0"`, `"version":"2.0.0"`, 1), `{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}`, "", 1)).want(t, 404, forrst.VersionNotFound, "")
}

func TestDeclarationsThatAreWrong(t *testing.T) {
	run := charge(new(atomic.Int64))
	v := []forrst.Version{{Version: "1.0.0", Run: run}}
	engine, err := semel.New(newWorld(t, forrst.Options{Functions: []forrst.Function{charging(semel.Operation{}, run)}}).store, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, fs := range map[string][]forrst.Function{
		"no functions":      nil,
		"no name":           {{Versions: v}},
		"Forrst's own":      {{Name: "forrst.ping", Versions: v}},
		"Forrst's own URN":  {{Name: "urn:cline:forrst:fn:ping", Versions: v}},
		"no versions":       {{Name: "a.b"}},
		"a bad version":     {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0", Run: run}}}},
		"twice":             {{Name: "a.b", Versions: v}, {Name: "a.b", Versions: v}},
		"a version twice":   {{Name: "a.b", Versions: append(v, v...)}},
		"no handler":        {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0.0"}}}},
		"a long name":       {{Name: strings.Repeat("a", 100), Versions: v}},
		"a bad key rule":    {{Name: "a.b", Key: "never", Versions: v}},
		"a bad effect":      {{Name: "a.b", SideEffects: []string{"pay"}, Versions: v}},
		"a bad schema":      {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0.0", Run: run, Arguments: json.RawMessage("{")}}}},
		"no schema":         {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0.0", Run: run, Arguments: json.RawMessage(`{"type":"text"}`)}}}},
		"a schema far away": {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0.0", Run: run, Arguments: json.RawMessage(`{"$ref":"http://127.0.0.1/schema"}`)}}}},
		"bad returns":       {{Name: "a.b", Versions: []forrst.Version{{Version: "1.0.0", Run: run, Returns: json.RawMessage("{")}}}},
		"a bad operation":   {{Name: "a.b", Operation: semel.Operation{Window: -1}, Versions: v}},
	} {
		if _, err := forrst.New(engine, forrst.Options{Functions: fs}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := forrst.New(nil, forrst.Options{}); err == nil {
		t.Error("no engine is accepted")
	}
}
