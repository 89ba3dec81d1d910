package semelhttp

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel/internal/keytemplate"
)

// ScopePath and ScopeHost in Route.ScopeHeaders stand for the path of a request, as it
// was sent and without its query, and for the host that it was sent to.
const (
	ScopePath = ":path"
	ScopeHost = "Host"
)

// scope is what a request says about whose call it is, apart from its key; empty if it
// says nothing. An absent header differs from an empty one.
func (h *handler) scope(r *http.Request) string {
	if len(h.route.ScopeHeaders) == 0 {
		return ""
	}
	var scope string
	for _, name := range h.route.ScopeHeaders {
		values := r.Header[name]
		switch name {
		case ScopePath:
			values = []string{targetPath(r)}
		case ScopeHost:
			values = []string{plainHost(r.Host)}
		}
		for _, v := range values {
			scope = keytemplate.AppendScope(scope, strings.TrimPrefix(name, ":"), v)
		}
	}
	return keytemplate.FitScope(scope)
}
