package api

import (
	"context"
	"net/http"

	"github.com/semelhq/semel"
)

// exchange is one request with who sent it.
type exchange struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller Caller
	admin  bool // through the admin handler
}

type exchangeKey struct{}

// ctx is the request's: it ends when the caller hangs up.
func (x *exchange) ctx() context.Context { return x.r.Context() }

// tenant is what bounds the caller; nil for one that sees all.
func (x *exchange) tenant() *string {
	if x.caller.Role == Admin && x.caller.Tenant == "" {
		return nil
	}
	return &x.caller.Tenant
}

// own reports whether the identity is one that the caller can have made.
func (x *exchange) own(id semel.ID) bool {
	if id.Tenant != x.caller.Tenant {
		return false
	}
	if op, ok := x.api.engine.Operation(id.Operation); ok && op.Share == semel.ShareTenant {
		return id.Principal == ""
	}
	return id.Principal == x.caller.Principal
}

// oversees reports whether the caller may look at all records of the tenant.
func (x *exchange) oversees(tenant string) bool {
	bound := x.tenant()
	return x.admin && x.caller.Role >= Viewer && (bound == nil || *bound == tenant)
}

// named reads the name of a record that the caller may know of. To anyone else it
// does not exist.
func (x *exchange) named(text string) (semel.ID, error) {
	id, err := semel.DecodeID(text)
	if err != nil || !x.own(id) && !x.oversees(id.Tenant) {
		return semel.ID{}, x.noRecord()
	}
	return id, nil
}

func (x *exchange) noRecord() error {
	return x.api.newProblem(semel.CodeNotFound, "there is no such record, or it is not yours")
}

// shown is a record that was read, if the caller may see its answer.
func (x *exchange) shown(rec *semel.Record) error {
	if x.oversees(rec.ID.Tenant) {
		return nil
	}
	op, ok := x.api.engine.Operation(rec.ID.Operation)
	if !ok || op.Authorize == nil {
		return nil
	}
	call := semel.Call{Tenant: x.caller.Tenant, Principal: x.caller.Principal, Operation: rec.ID.Operation, Key: rec.ID.Key}
	if op.Authorize(x.ctx(), call, *rec) != nil {
		return x.noRecord()
	}
	return nil
}
