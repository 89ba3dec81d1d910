package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

type exchange struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller Caller
	admin  bool // it came through the admin handler
}

type reply[T any] struct{ Body T }

// replied is the reply of what may have failed.
func replied[T any](body *T, err error) (*reply[T], error) {
	if err != nil {
		return nil, err
	}
	return &reply[T]{*body}, nil
}

type exchangeKey struct{}

// ctx is the request's context: it ends when the caller hangs up.
func (x *exchange) ctx() context.Context { return x.r.Context() }

// tenant is the only tenant that the caller may see; nil if they may see all.
func (x *exchange) tenant() *string {
	if x.caller.Role > NoRole && x.caller.AllTenants {
		return nil
	}
	return &x.caller.Tenant
}

// tenantOf is the tenant whose things the caller asks for, if they may: their own by default, and
// for who sees all tenants the empty one.
func (x *exchange) tenantOf(asked, things string) (string, error) {
	bound := x.tenant()
	switch {
	case bound == nil:
		return asked, nil
	case asked != "" && asked != *bound:
		return "", x.api.newProblem(semel.CodeForbidden, "the caller may see only their own tenant's "+things)
	}
	return *bound, nil
}

// name writes the caller into a call that has its operation and its key.
func (x *exchange) name(call *semel.Call) semel.Share {
	op, _ := x.api.engine.Internal().Operation(call.Operation)
	who := semelhttp.Caller{Tenant: x.caller.Tenant, Principal: x.caller.Principal, Credential: x.caller.Credential, Unproved: x.caller.Unproved}
	who.Name(call, op.Share)
	return op.Share
}

// own reports whether the caller can have made the identity. What binds a call is in its record.
func (x *exchange) own(id semel.ID) bool {
	call := semel.Call{Operation: id.Operation, Key: id.Key}
	share := x.name(&call)
	return call.ID(share) == id
}

// oversees reports whether the caller may look at all records of the tenant.
func (x *exchange) oversees(tenant string) bool {
	bound := x.tenant()
	return x.admin && x.caller.Role >= Viewer && (bound == nil || *bound == tenant)
}

// named reads the name of a record. For those who may not know of it, it doesn't exist.
func (x *exchange) named(text string) (semel.ID, error) {
	id, err := store.DecodeID(text)
	if err != nil || !x.own(id) && !x.oversees(id.Tenant) {
		return semel.ID{}, x.noRecord()
	}
	return id, nil
}

// missing says noRecord where err says that there is none.
func (x *exchange) missing(err error) error {
	if errors.Is(err, semel.ErrNotFound) {
		return x.noRecord()
	}
	return err
}

func (x *exchange) noRecord() error {
	return x.api.newProblem(semel.CodeNotFound, "there is no such record, or it is not yours")
}

// shown returns an error if the caller may not see the record's answer.
func (x *exchange) shown(rec *semel.Record) error {
	if x.oversees(rec.ID.Tenant) {
		return nil
	}
	call := semel.Call{Operation: rec.ID.Operation, Key: rec.ID.Key}
	if x.name(&call); call.Unproved || rec.BoundTo != call.BoundTo {
		return x.api.newProblem(semel.CodeOtherCaller, "")
	}
	op, ok := x.api.engine.Internal().Operation(rec.ID.Operation)
	if ok && op.Authorize != nil && op.Authorize(x.ctx(), call, *rec) != nil {
		return x.noRecord()
	}
	return nil
}

// result converts a result for the engine. path is where its members are.
func (a *API) result(given wire.Result, path string) (res semel.Result, err error) {
	res.Attributes = given.Attributes
	res.Data, err = a.given(given.JSON, given.Bytes, path+".result_base64", "a result is JSON or bytes, not both")
	if err != nil || given.JSON == nil {
		return res, err
	}
	// An encoder passes it on unchanged if it has no white space.
	var b bytes.Buffer
	if err := json.Compact(&b, given.JSON); err != nil {
		return res, a.invalid(path+".result", "the result is not JSON")
	}
	res.Data = b.Bytes()
	return res, nil
}

// given is what a body has as it is, or in base64 in the member at a path; both says that it may
// not have both.
func (a *API) given(plain []byte, encoded *string, path, both string) ([]byte, error) {
	data, err := wire.FromBase64(encoded)
	switch {
	case plain != nil && encoded != nil:
		return nil, a.invalid(path, both)
	case err != nil:
		return nil, a.invalid(path, err.Error())
	case encoded != nil:
		return data, nil
	}
	return plain, nil
}
