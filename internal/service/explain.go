package service

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
)

// explain says what serveData would do with a request, given its body: which rule takes it, why
// the others don't, and how it ends. It asks the same rules in the same order, and does
// nothing. The request counts as one that came to the data listener.
func (s *Server) explain(r *http.Request, body []byte) (api.Explained, error) {
	g := s.enter()
	defer g.inFlight.Done()
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, s.data.addr()))
	x := explanation{g: g, r: r, body: body}
	x.own()
	err := x.doors(false)
	x.routes()
	err = cmp.Or(err, x.doors(true))
	x.api(s)
	if x.found.Outcome == "" {
		x.found.Outcome, x.found.Code, x.found.Why = "nothing", semel.CodeNotFound, "No rule matches, so the answer is 404."
	}
	return x.found, err
}

// Explain says what a service with a configuration would do with a request from this machine,
// given its body. It opens no store, fetches nothing, and keeps no evidence.
func Explain(cfg *config.Config, r *http.Request, body []byte) (found api.Explained, err error) {
	silent := *cfg
	silent.Evidence.KeyFile = ""
	r.RemoteAddr = "127.0.0.1:0"
	return found, assemble(&silent, noWitness{}, func(s *Server) (err error) {
		found, err = s.explain(r, body)
		return err
	})
}

// noWitness stands for the evidence log. Nothing is done that it would be asked about.
type noWitness struct{ semel.Witness }

type explanation struct {
	g     *generation
	r     *http.Request
	body  []byte
	found api.Explained
}

// rule notes a rule, and reports whether the request is its own: it matches, and no earlier
// rule does. why is the reason where it doesn't match.
func (x *explanation) rule(name, match string, matches bool, why string) bool {
	taken := x.found.Rule != ""
	if matches && taken {
		why = "It would match, but " + x.found.Rule + " is asked before it."
	} else if matches {
		x.found.Rule, why = name, "It matches, and nothing before it does."
	}
	x.found.Rules = append(x.found.Rules, api.Rule{Rule: name, Match: match, Matches: matches && !taken, Why: why})
	return matches && !taken
}

func (x *explanation) end(outcome string, code semel.Code, why string) {
	x.found.Outcome, x.found.Code, x.found.Why = outcome, code, why
}

// own asks the addresses that are always the service's own.
func (x *explanation) own() {
	for _, own := range [...]struct{ prefix, what string }{{statusPath, "says what became of a call"}, {problemsPath, "explains a code"}} {
		if x.rule("service", own.prefix+"…", strings.HasPrefix(x.r.URL.Path, own.prefix), "The path doesn't begin so.") {
			x.end("door", "", "The service answers by itself: it "+own.what+".")
		}
	}
}

// doors asks the doors, which no route can hide, or the one at the root, which comes last.
func (x *explanation) doors(last bool) error {
	for i := range x.g.doors {
		d := &x.g.doors[i]
		if d.last != last {
			continue
		}
		match := strings.Join(d.paths, ", ")
		if d.serves != nil {
			match = strings.TrimPrefix(match+" and what belongs to it", " and ")
		}
		if x.rule("door "+d.name, match, d.serving(x.r.URL.Path), "The path is another.") {
			x.found.Door, x.found.Setting, x.found.Upstream = d.name, d.setting, d.upstream
			x.end("door", "", "The door "+d.name+" has this path. It checks who sent the request, and says itself what its key is.")
			if d.explain != nil {
				return d.explain(x.r, x.body, &x.found)
			}
		}
	}
	return nil
}

// routes asks the routes. The most specific one that matches has the request.
func (x *explanation) routes() {
	chosen := x.g.routes.find(x.r)
	for i := range x.g.cfg.Routes {
		rt := &x.g.cfg.Routes[i]
		name := fmt.Sprintf("routes[%d]", i)
		mine := chosen != nil && x.g.routes.proxies[rt.Match] == chosen
		why := mismatch(rt.Match, x.r)
		if why == "" {
			why = "It matches too, but another route does that is more specific."
		}
		if !x.rule(name, rt.Match, mine, why) {
			continue
		}
		x.found.Door, x.found.Setting, x.found.Operation, x.found.Upstream = semelhttp.Name, name, rt.Operation, rt.Upstream
		switch {
		case x.g.passesDoor(x.r.URL.Path):
			x.end("refused", door.CodeAmbiguousTarget, "Spelled another way, the path belongs to a door of this service.")
		case x.g.routes.evades(x.r, chosen):
			x.end("refused", door.CodeAmbiguousTarget, "Spelled another way, the path belongs to a route that guards it.")
		default:
			got := chosen.Explain(x.r, x.body)
			x.found.Operation, x.found.ID, x.found.PayloadHash = got.Operation, got.ID, got.Fingerprint
			x.found.Key, x.found.KeyFrom = got.ID.Key, got.By
			x.end(string(got.Outcome), got.Code, got.Why)
		}
	}
}

// executionsPath matches the requests that begin a call over the execution API.
const executionsPath = "POST /v1/operations/{operation}/executions"

// api asks the execution API, which a route may hide.
func (x *explanation) api(s *Server) {
	cfg := x.g.cfg
	why := mismatch(executionsPath, x.r)
	match, matches := "/v1/…", strings.HasPrefix(x.r.URL.Path, "/v1/")
	if cfg.API == config.APIOff {
		x.rule("api", match, false, "The execution API is off.")
		return
	}
	if !x.rule("api", match, matches, "The path doesn't begin so.") {
		return
	}
	x.found.Door, x.found.Setting = api.Name, "api"
	if why != "" {
		x.end("api", "", "No route matches, so the execution API answers. The request begins no call: "+why)
		return
	}
	x.found.Operation = strings.Split(x.r.URL.Path, "/")[3]
	x.end("api", "", "No route matches, so the execution API begins the call.")
	switch key, present, fault := semelhttp.RequestKey(x.r.Header, semelhttp.DefaultKeyHeader, semel.MaxKeyLen); {
	case fault != "":
		x.end("refused", door.CodeKeyInvalid, fault)
	case present:
		x.found.Key, x.found.KeyFrom = key, "header:"+semelhttp.DefaultKeyHeader
		x.found.ID = s.executionOf(x.r, x.found.Operation, key)
	}
}

// executionOf is the call that a request would begin there; zero if its caller isn't known.
func (s *Server) executionOf(r *http.Request, operation, key string) semel.ID {
	c, err := s.caller(r)
	op, ok := s.engine.Internal().Operation(operation)
	if err != nil || !ok {
		return semel.ID{}
	}
	call := semel.Call{Operation: operation, Key: key}
	semelhttp.Caller{Tenant: c.Tenant, Principal: c.Principal, Credential: c.Credential}.Name(&call, op.Share)
	return call.ID(op.Share)
}

// mismatch is why a pattern doesn't match a request; empty if it does.
func mismatch(pattern string, r *http.Request) string {
	method, rest := "", pattern
	if before, after, ok := strings.Cut(pattern, " "); ok {
		method, rest = before, strings.TrimLeft(after, " ")
	}
	host, path := rest[:strings.IndexByte(rest, '/')], rest[strings.IndexByte(rest, '/'):]
	switch {
	case takes(pattern, r):
		return ""
	case method != "" && takes(rest, r):
		return "The method is " + r.Method + ", and it matches " + method + "."
	case host != "" && takes(path, r):
		return fmt.Sprintf("The host is %s, and it matches %s.", cmp.Or(r.Host, "missing"), host)
	}
	return differs(path, r.URL.Path)
}

func takes(pattern string, r *http.Request) bool {
	mux := http.NewServeMux()
	mux.Handle(pattern, http.NotFoundHandler())
	_, found := mux.Handler(r)
	return found != ""
}

// differs says where a path stops matching a pattern.
func differs(pattern, path string) string {
	want, got := strings.Split(pattern, "/")[1:], strings.Split(path, "/")[1:]
	for i, segment := range want {
		switch {
		case segment == "" && i == len(want)-1, strings.HasSuffix(segment, "...}"): // takes what follows
			return "The path is another."
		case i >= len(got) || got[i] == "" && i == len(got)-1:
			return "The path ends before /" + segment + "."
		case strings.HasPrefix(segment, "{"), segment == got[i]:
		default:
			return fmt.Sprintf("The path has /%.60s where it has /%s.", got[i], segment)
		}
	}
	return "The path goes on after it."
}
