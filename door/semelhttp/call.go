package semelhttp

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/payload"
)

// ScopePath and ScopeHost in Route.ScopeHeaders stand for the path of a request, as it
// was sent and without its query, and for the host that it was sent to.
const (
	ScopePath = ":path"
	ScopeHost = "Host"
)

// call is the call that a request delivers, with nothing but its identity.
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
	scope = keytemplate.FitScope(scope) // also before more is added, as recorded scopes have it
	if found.Scope != "" && scope != "" {
		scope += "&"
	}
	call := semel.Call{Operation: h.operation, Key: found.Key, Scope: keytemplate.FitScope(scope + found.Scope), Door: Name}
	who.Name(&call, h.share)
	return call
}
