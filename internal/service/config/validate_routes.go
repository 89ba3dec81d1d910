package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
)

// operations checks the declared operations; the engine's own check comes last, for the rest.
func (v *validator) operations() {
	for path, op := range items("operations", v.c.Operations) {
		before := len(v.List)
		v.operation(path, op)
		if _, err := op.Policy(); err != nil && len(v.List) == before && !v.faultyBelow(path) {
			v.bad(path, "", "%s", engineFault(err, op.Name, *op))
		}
	}
}

func (v *validator) operation(path string, op *Operation) {
	if op.Class == semel.Windowed && op.Window == 0 {
		v.bad(path+".window", "write how long duplicates are found, such as 24h", "class I2 needs a window of its own")
	}
	if op.Class == semel.Shielded && len(op.Shields) == 0 {
		v.bad(path+".shields", "write such as [S1]; see the description of shields", "class I3 needs at least one shield")
	}
	if op.Financial && op.Window < Duration(24*time.Hour) && op.Window != 0 {
		v.bad(path+".window", "write 24h or more, or leave it out for 7d", "%v is shorter than the 24h that a financial operation needs", op.Window)
	}
	v.remembering(path, op.Remember, op.Window)
	v.reconcile(path+".reconcile", op)
	for i, s := range op.Shields {
		if s == semel.ShieldReconcile && !op.asks() {
			v.bad(fmt.Sprintf("%s.shields[%d]", path, i), "add reconcile or reconcile_url", "shield S4 needs a reconciler")
		}
		if s == semel.ShieldLedger && op.Class == semel.Shielded && op.Effects == nil {
			v.bad(fmt.Sprintf("%s.shields[%d]", path, i), "name them in effects, or write [] if there are none", "shield S3 needs the effects: the ledger proves what happened only if nothing happens outside of it")
		}
	}
	for i, name := range op.Effects {
		if name == "" || len(name) > store.MaxNameLen {
			v.bad(fmt.Sprintf("%s.effects[%d]", path, i), "", "the name has %d bytes, not 1 to %d", len(name), store.MaxNameLen)
		}
	}
	v.rate(path+".per_record", op.PerRecord)
	v.rate(path+".per_principal", op.PerPrincipal)
}

// reconcile checks whom an operation asks about held calls.
func (v *validator) reconcile(path string, op *Operation) {
	if !op.Reconcile.On() || v.faultyBelow(path) {
		return
	}
	longest := Duration(0)
	for _, r := range v.c.Routes {
		if r.Operation == op.Name {
			longest = max(longest, r.Timeout)
		}
	}
	for _, m := range v.c.MCP {
		if m.Operation == op.Name {
			longest = max(longest, m.Timeout)
		}
	}
	if err := op.Reconcile.Check(time.Duration(longest)); err != nil {
		v.bad(path, "", "%s", err)
	} else if op.ReconcileURL != "" {
		v.bad(path, "keep one of them", "both reconcile and reconcile_url are given")
	}
	if op.Reconcile.SecretFile != "" {
		secretFile(v.Report, path+".secret_file", op.Reconcile.SecretFile)
	}
}

// engineFault is the text of the engine's errors about an operation without what the path says
// already, and with the settings' names for the fields.
func engineFault(err error, name string, sections ...any) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if _, after, ok := strings.Cut(line, fmt.Sprintf("operation %q: ", name)); ok {
			lines[i] = after
		}
	}
	return settingsOf(strings.Join(lines, "; "), sections...)
}

// settingsOf replaces the names of Go's fields in a text by the names of the same settings in
// the file. A single word may be another's name, and stays in a list.
func settingsOf(text string, sections ...any) string {
	for _, section := range sections {
		for field, setting := range settingNames("", "", reflect.TypeOf(section)) {
			ends := `($|[ :])`
			if strings.ContainsFunc(field[1:], unicode.IsUpper) {
				ends = `($|[ :,])`
			}
			text = regexp.MustCompile(`(^|[ ;])`+field+ends).ReplaceAllString(text, "${1}"+setting+"${2}")
		}
	}
	return text
}

// settingNames are the names of a section's settings by the names of its fields; a field of a
// group also has both names, as in FingerprintOnly.
func settingNames(field, setting string, section reflect.Type) map[string]string {
	names := map[string]string{}
	for _, f := range strictyaml.Fields(section) {
		own := section.FieldByIndex(f.Index)
		names[field+own.Name] = setting + f.Name
		if own.Type.Kind() == reflect.Struct {
			maps.Copy(names, settingNames(field+own.Name, setting+f.Name+".", own.Type))
		}
	}
	return names
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}

// routes checks the patterns, alone and together, and everything that the routes refer to.
func (v *validator) routes() {
	all := http.NewServeMux()
	for i, r := range v.c.Routes {
		path := fmt.Sprintf("routes[%d]", i)
		if v.pattern(path+".match", r.Match) {
			if mistake := register(all, r.Match); mistake != "" {
				v.clash(path+".match", i, mistake)
			}
		}
		v.routeOperation(path, r)
		v.answers(path, r.Answers)
		if r.KeyHeader == "" {
			v.bad(path+".key_header", "write Idempotency-Key", "key_header is empty")
		}
		v.credentials(path+".credential", r.Credential)
		for at, name := range items(path+".scope_headers", r.ScopeHeaders) {
			if *name == "" {
				v.bad(at, "", "scope_headers has an empty name")
			} else if *name != semelhttp.ScopePath {
				v.is(at, "header", *name)
			}
		}
		v.body(path+".max_body", r.MaxBody)
		v.routeHeaders(path, r)
	}
}

func (v *validator) credentials(path string, list []string) {
	for at, credential := range items(path, list) {
		if name, cookie := strings.CutPrefix(*credential, "cookie:"); name == "" {
			v.bad(at, "write Authorization, or cookie: and a name", "credential names neither a header nor a cookie")
		} else if header, _, partial := strings.Cut(*credential, ":"); !cookie {
			v.is(at, "header", header)
			if fault := routeFault(semelhttp.Route{Credential: []string{*credential}}); partial && fault != "" {
				v.bad(at, "write such as authorization:Credential", "%s", fault)
			}
		}
	}
}

func (v *validator) body(path string, largest Size) {
	if largest > v.c.Limits.TenantBytes && !v.Faulty["limits.tenant_bytes"] {
		v.bad(path, "lower it, or raise limits.tenant_bytes", "%v is more than the %v that one tenant may have in flight", largest, v.c.Limits.TenantBytes)
	} else if largest > v.c.Limits.PrincipalBytes && !v.Faulty["limits.principal_bytes"] {
		v.bad(path, "lower it, or raise limits.principal_bytes", "%v is more than the %v that one principal may have in flight", largest, v.c.Limits.PrincipalBytes)
	}
}

func (v *validator) routeOperation(path string, r Route) {
	if r.Mode == "off" && r.Operation == "" {
		return
	}
	op := v.operationOf(path, r.Operation)
	if profile, ok := semelhttp.ProfileByName(r.Profile); ok && op != nil && profile.NeverKeep5xx && op.OnFailure == semel.ReplayFailure {
		v.bad(path+".profile", "write on_failure: retry in the operation", "the profile %s forbids that a 5xx is kept, but %s replays failures", r.Profile, r.Operation)
	}
}

// operationOf finds the operation of the calls of a route or a door; nil if something is wrong.
func (v *validator) operationOf(path, name string) *Operation {
	if v.Faulty["operations"] {
		return nil
	}
	var names []string
	misnamed := false
	for at, op := range items("operations", v.c.Operations) {
		names = append(names, op.Name)
		misnamed = misnamed || v.Faulty[at+".name"] // it may be the one
	}
	op, list := v.c.operation(name), "the operations are "+strings.Join(names, ", ")
	switch {
	case name == "":
		v.bad(path+".operation", list, "operation is missing, and there is none named %s", DefaultOperation)
	case op == nil && !misnamed:
		v.bad(path+".operation", cmp.Or(strictyaml.DidYouMean(name, names), list), "there is no operation %q", name)
	}
	return op
}

// pattern checks one pattern, and reports whether it can be registered.
func (v *validator) pattern(path, match string) bool {
	if match == "" {
		return false
	}
	if mistake := register(http.NewServeMux(), match); mistake != "" {
		hint := "write a method and a path, such as POST /charges/{id}"
		if method, rest, _ := strings.Cut(match, " "); !strings.Contains(match, "/") && rest != "" {
			hint = "write " + method + " /" + strings.TrimSpace(rest)
		}
		v.bad(path, hint, "%q is not a pattern: %s", match, mistake)
		return false
	}
	method, _, found := strings.Cut(match, " ")
	if found && !slices.Contains(methods, method) {
		hint := strictyaml.DidYouMean(strings.ToUpper(method), methods)
		if hint == "" {
			hint = "the methods are " + strings.Join(methods, ", ")
		}
		v.bad(path, hint, "there is no method %q", method)
		return false
	}
	if i := strings.Index(match, "/"); strings.HasPrefix(match[i:], ownPrefix) {
		v.bad(path, "", "paths below %s belong to the service itself", ownPrefix)
		return false
	}
	return true
}

// ownPrefix is where the service itself answers, whatever the routes say.
const ownPrefix = "/semel/"

// clash names the earlier route that matches the same requests.
func (v *validator) clash(path string, i int, mistake string) {
	for j, other := range v.c.Routes[:i] {
		mux := http.NewServeMux()
		if register(mux, other.Match) != "" || register(mux, v.c.Routes[i].Match) == "" {
			continue
		}
		if other.Match == v.c.Routes[i].Match {
			v.bad(path, "", "routes[%d] has the same pattern", j)
		} else {
			v.bad(path, "make one of them more specific in everything", "%q conflicts with %q of routes[%d]: neither is more specific", v.c.Routes[i].Match, other.Match, j)
		}
		return
	}
	v.bad(path, "", "%s", mistake)
}

var (
	registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`)
	parsingWhat  = regexp.MustCompile(`^parsing ".*": `)
)

// register adds a pattern to a mux, and returns why it can't: the mux panics then.
func register(mux *http.ServeMux, pattern string) (mistake string) {
	defer func() {
		if r := recover(); r != nil {
			text := registeredAt.ReplaceAllString(fmt.Sprint(r), "")
			mistake = strings.ReplaceAll(parsingWhat.ReplaceAllString(text, ""), "\n", " ")
		}
	}()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return ""
}

// routeHeaders runs the middleware's own checks of headers, methods and statuses.
func (v *validator) routeHeaders(path string, r Route) {
	all := v.c.Guarded(r)
	if k := r.KeyTemplate; k.Format != "" && k.Template+k.Scope+k.ScopeField != "" {
		v.bad(path+".key_template.format", "give either", "a format has its own template and scope")
	}
	if op := v.c.operation(r.Operation); op != nil && op.Sequenced != (r.Sequence != "") {
		v.bad(path+".sequence", "write such as sequence: header:X-Sequence in the route and sequenced: true in the operation, or neither", "the route and its operation don't agree whether calls have numbers")
	}
	for _, part := range []struct {
		name string
		rt   semelhttp.Route
	}{
		{"sequence", semelhttp.Route{Sequence: r.Sequence}},
		{"key_from", semelhttp.Route{KeyFrom: r.KeyFrom}},
		{"key_template", semelhttp.Route{KeyTemplate: all.KeyTemplate}},
		{"fingerprint", semelhttp.Route{FingerprintOnly: r.Fingerprint.Only, FingerprintIgnore: r.Fingerprint.Ignore, Body: r.Body, Profile: all.Profile}},
		{"attributes", semelhttp.Route{Attributes: all.Attributes}},
		{"methods", semelhttp.Route{Methods: r.Methods}},
		{"fingerprint_headers", semelhttp.Route{FingerprintHeaders: r.FingerprintHeaders, KeyHeader: r.KeyHeader}},
		{"origins", semelhttp.Route{Origins: r.Origins}},
		{"keep_headers", semelhttp.Route{KeepHeaders: r.KeepHeaders, KeyHeader: r.KeyHeader, Profile: all.Profile}},
	} {
		if v.faultyBelow(path + "." + part.name) {
			continue
		}
		if fault := routeFault(part.rt); fault != "" {
			v.bad(path+"."+part.name, "", "%s", strings.TrimPrefix(fault, part.name+": "))
		}
	}
	if fault := routeFault(all); fault != "" && !v.faultyBelow(path) { // of its parts together
		v.bad(path+".fingerprint", "", "%s", strings.TrimPrefix(fault, "fingerprint: "))
	}
}

// routeFault is what the middleware has against a part of a route; empty if nothing.
func routeFault(part semelhttp.Route) string {
	if err := part.Validate(); err != nil {
		return engineFault(err, part.Operation.Name, Route{}, KeyTemplate{})
	}
	return ""
}
