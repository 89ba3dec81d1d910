package forrst

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/mod/semver"
)

// systemFunctions are the functions of every service, by all their names. They change nothing,
// so the idempotency extension doesn't apply to them.
var systemFunctions = map[string]func(*Service, context.Context, *Request) answer{
	"urn:cline:forrst:fn:ping":                       (*Service).ping,
	"urn:cline:forrst:fn:health":                     (*Service).health,
	"urn:cline:forrst:fn:capabilities":               (*Service).capabilities,
	"urn:cline:forrst:fn:describe":                   (*Service).describe,
	"urn:cline:forrst:ext:diagnostics:fn:ping":       (*Service).ping,
	"urn:cline:forrst:ext:diagnostics:fn:health":     (*Service).health,
	"urn:cline:forrst:ext:discovery:fn:capabilities": (*Service).capabilities,
	"urn:cline:forrst:ext:discovery:fn:describe":     (*Service).describe,
}

// systemVersion is the version of the system functions.
const systemVersion = "1.0.0"

// retryURN is the answers' extension that says whether to try again.
const retryURN = "urn:forrst:ext:retry"

// The states of a component.
const (
	healthy   = "healthy"
	unhealthy = "unhealthy"
)

// result answers with the result of a system function.
func result(status int, v any) answer {
	raw, err := marshal(v)
	if err != nil { // the functions' declarations were checked
		return refused(one(InternalError, nil, "The result has no JSON form"))
	}
	return answer{status: status, result: raw}
}

// arguments reads the arguments of a system function into a struct.
func (r *Request) arguments(into any, names ...string) (errs Errors) {
	if r.asked != "" && r.asked != systemVersion {
		return one(VersionNotFound, At("call", "version"), "The function has only version %s", systemVersion)
	}
	m, _ := members(r.Arguments)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, name) {
			errs.add(InvalidArguments, At("call", "arguments", name), "There is no such argument")
		}
	}
	if len(errs) > 0 {
		return errs
	}
	// A struct would also match names that differ by case, but those have been refused above.
	if err := json.Unmarshal(r.Arguments, into); err != nil {
		at := []string{"call", "arguments"}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			at = append(at, wrong.Field)
		}
		errs.add(InvalidArguments, At(at...), "The argument has the wrong type")
	}
	return errs
}

func (s *Service) ping(_ context.Context, r *Request) answer {
	if errs := r.arguments(&struct{}{}); len(errs) > 0 {
		return refused(errs)
	}
	return result(http.StatusOK, struct {
		Status    string `json:"status"`
		Timestamp string `json:"timestamp"`
	}{healthy, timestamp(time.Now())})
}

// component is the state of something that the service needs.
type component struct {
	Status  string    `json:"status"`
	Latency *Duration `json:"latency,omitempty"`
	Message string    `json:"message,omitempty"`
}

// health checks the components. If one is down, the service is unhealthy.
func (s *Service) health(ctx context.Context, r *Request) answer {
	args := struct {
		Component string `json:"component"`
		Details   *bool  `json:"include_details"`
	}{}
	if errs := r.arguments(&args, "component", "include_details"); len(errs) > 0 {
		return refused(errs)
	}
	checks := map[string]func(context.Context) error{
		"self": func(context.Context) error { return nil },
		"database": func(ctx context.Context) error {
			_, err := s.engine.Internal().Store().Now(ctx)
			return err
		},
	}
	maps.Copy(checks, s.opts.Components)
	if args.Component != "" {
		check, ok := checks[args.Component]
		if !ok {
			return refused(one(NotFound, At("call", "arguments", "component"), "There is no such component"))
		}
		checks = map[string]func(context.Context) error{args.Component: check}
	}
	said := struct {
		Status     string               `json:"status"`
		Components map[string]component `json:"components,omitempty"`
		Timestamp  string               `json:"timestamp"`
	}{Status: healthy, Components: map[string]component{}, Timestamp: timestamp(time.Now())}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	status := http.StatusOK
	for name, check := range checks {
		began := time.Now()
		c := component{Status: healthy}
		if err := check(ctx); err != nil {
			s.reportError(err)
			c.Status, c.Message = unhealthy, "The component does not answer as it should"
			said.Status, status = unhealthy, http.StatusServiceUnavailable
		}
		c.Latency = &Duration{time.Since(began).Milliseconds(), "millisecond"}
		said.Components[name] = c
	}
	if args.Details != nil && !*args.Details {
		said.Components = nil
	}
	return result(status, said)
}

// healthTimeout bounds the checks of all components together.
const healthTimeout = 5 * time.Second

func (s *Service) capabilities(_ context.Context, r *Request) answer {
	if errs := r.arguments(&struct{}{}); len(errs) > 0 {
		return refused(errs)
	}
	type limits struct {
		MaxRequestBytes int64    `json:"max_request_bytes"`
		DefaultDeadline Duration `json:"default_deadline"`
	}
	type supported struct {
		URN           string `json:"urn"`
		Documentation string `json:"documentation"`
	}
	said := struct {
		Service    string      `json:"service"`
		Versions   []string    `json:"protocol_versions"`
		Extensions []supported `json:"extensions"`
		Functions  []string    `json:"functions"`
		Limits     limits      `json:"limits"`
	}{
		Service: s.opts.Service, Versions: []string{ProtocolVersion}, Functions: slices.Sorted(maps.Keys(s.functions)),
		Limits: limits{s.opts.MaxBody, rounded(s.opts.Timeout)},
	}
	for _, urn := range s.extensions() {
		said.Extensions = append(said.Extensions, supported{urn, urn})
	}
	return result(http.StatusOK, said)
}

// described is a version in describe.
type described struct {
	Version     string              `json:"version"`
	Stability   string              `json:"stability"`
	Description string              `json:"description,omitempty"`
	Schema      *schema             `json:"schema,omitempty"`
	Extensions  map[string][]string `json:"extensions,omitempty"`
}

type schema struct {
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Returns   json.RawMessage `json:"returns,omitempty"`
}

func (s *Service) describe(_ context.Context, r *Request) answer {
	args := struct {
		Function string `json:"function"`
		Version  string `json:"version"`
		Schema   *bool  `json:"include_schema"`
	}{}
	if errs := r.arguments(&args, "function", "version", "include_schema"); len(errs) > 0 {
		return refused(errs)
	}
	f := s.functions[args.Function]
	switch {
	case args.Function == "":
		return refused(one(InvalidArguments, At("call", "arguments", "function"), "The function to describe is missing"))
	case f == nil:
		return refused(one(FunctionNotFound, At("call", "arguments", "function"), "There is no such function"))
	case args.Version != "" && f.versions[args.Version] == nil:
		return refused(one(VersionNotFound, At("call", "arguments", "version"), "The function has no such version"))
	}
	said := struct {
		Function    string      `json:"function"`
		Description string      `json:"description,omitempty"`
		SideEffects []string    `json:"side_effects"`
		Versions    []described `json:"versions"`
		Recommended string      `json:"recommended_version,omitempty"`
	}{f.Name, f.Description, append([]string{}, f.SideEffects...), nil, f.latest}
	for _, name := range f.sorted() {
		if args.Version != "" && args.Version != name {
			continue
		}
		v := f.versions[name]
		d := described{Version: name, Stability: stability(name), Description: v.Description}
		if (args.Schema == nil || *args.Schema) && (v.Arguments != nil || v.Returns != nil) {
			d.Schema = &schema{v.Arguments, v.Returns}
		}
		if f.readOnly {
			d.Extensions = map[string][]string{"excluded": {IdempotencyURN}}
		}
		said.Versions = append(said.Versions, d)
	}
	return result(http.StatusOK, said)
}

// stability returns what a version's prerelease says about it.
func stability(version string) string {
	if semver.Prerelease("v"+version) == "" {
		return "stable"
	}
	return "beta"
}
