package semelhttp

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/payload"
)

// ScopePath and ScopeHost in Route.ScopeHeaders stand for the request's path, as sent and
// without its query, and for its host.
const (
	ScopePath = ":path"
	ScopeHost = "Host"
)

// call returns the call that a request delivers, with only its identity filled in.
func (h *handler) call(r *http.Request, found *extract.Found, who Caller) semel.Call {
	scope := ""
	for _, name := range h.route.ScopeHeaders {
		values := r.Header[name] // an absent header differs from an empty one
		switch name {
		case ScopePath:
			values = []string{payload.Path(r)}
		case ScopeHost:
			values = []string{payload.Host(r)}
		}
		for _, v := range values {
			scope = keytemplate.AppendScope(scope, strings.TrimPrefix(name, ":"), v)
		}
	}
	scope = keytemplate.FitScope(scope) // even if more is added, because recorded scopes have this form
	if found.Scope != "" && scope != "" {
		scope += "&"
	}
	call := semel.Call{Operation: h.operation, Key: found.Key, Scope: keytemplate.FitScope(scope + found.Scope), Door: Name}
	who.Name(&call, h.share)
	return call
}
