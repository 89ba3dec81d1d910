package forrst

import (
	"encoding/json"

	"github.com/semelhq/semel/internal/canon"
)

// Explanation says what a service would do with a request that it doesn't execute.
type Explanation struct {
	// ID, Function, Version and Operation say what would run; Version is the latest stable one
	// if the request names none.
	ID        string `json:"id,omitempty"`
	Function  string `json:"function,omitempty"`
	Version   string `json:"version,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Key and Scope, the function with the version in the request, identify the call, within
	// its caller. Both are empty if nothing is recorded, and Key is if each request is a call
	// of its own.
	Key   string `json:"key,omitempty"`
	Scope string `json:"scope,omitempty"`
	// KeptFor is how long the outcome lasts.
	KeptFor *Duration `json:"kept_for,omitempty"`
	// Arguments are the arguments in the form for comparison.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Status and Errors are the answer if the request would be refused.
	Status int    `json:"status,omitempty"`
	Errors Errors `json:"errors,omitempty"`
}

// Explain says what a delivery of this request would be, without looking at the store.
func (s *Service) Explain(body []byte) Explanation {
	r, id, errs := parse(body)
	x := Explanation{ID: id}
	if len(errs) == 0 {
		x.Function, x.Version = r.Function, r.asked
		errs = s.explain(&x, r)
	}
	if len(errs) > 0 {
		x.Status, x.Errors = statusOf(errs), errs
	}
	return x
}

func (s *Service) explain(x *Explanation, r *Request) Errors {
	if _, ok := systemFunctions[r.Function]; ok {
		return s.negotiate(r, nil)
	}
	f, _, errs := s.resolve(r)
	if len(errs) > 0 {
		return errs
	}
	x.Version, x.Operation = r.Version, f.operation
	if errs := s.negotiate(r, f); len(errs) > 0 {
		return errs
	}
	if errs := f.misfits(r); len(errs) > 0 || f.readOnly {
		return errs
	}
	call, err := s.call(r, f)
	if err == nil {
		x.Arguments, err = canon.Canonicalize(r.Arguments, canon.Exact)
	}
	if err != nil { // the parser has read them before
		return one(InternalError, nil, "The request can't be explained")
	}
	x.Key, x.Scope = r.Key, call.Scope
	op, _ := s.engine.Internal().Operation(f.operation)
	kept := rounded(op.Window)
	if call.Window != 0 {
		kept = rounded(call.Window)
	}
	x.KeptFor = &kept
	return nil
}
