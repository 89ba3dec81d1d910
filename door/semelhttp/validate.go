package semelhttp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/credential"
	"github.com/semelhq/semel/internal/origin"
	"github.com/semelhq/semel/internal/payload"
)

// Validate reports everything that is wrong with a route except its Operation, as
// [Guard.Handle] does.
func (rt Route) Validate() error {
	rt = rt.withDefaults()
	return rt.validate()
}

// validate is Validate for a route with its defaults.
func (rt *Route) validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("semelhttp: route for operation %q: "+format, append([]any{rt.Operation.Name}, args...)...))
		}
	}
	lines := func(prefix string, err error) {
		if err != nil {
			for text := range strings.SplitSeq(err.Error(), "\n") {
				bad(true, prefix+"%s", text)
			}
		}
	}
	p, op := &rt.Profile, &rt.Operation
	bad(rt.Key != KeyRequired && rt.Key != KeyOptional, "Key is %q, not required or optional", rt.Key)
	bad(!slices.Contains(payload.Modes, payload.Mode(rt.Body)), "Body is %q, not one of %v", rt.Body, payload.Modes)
	bad(!slices.Contains([]Anonymous{AnonymousLoopback, AnonymousShare, AnonymousRefuse}, rt.Anonymous), "Anonymous is %q, not loopback, share or refuse", rt.Anonymous)
	for _, answers := range [...]judge.Answers{rt.Answers, p.Answers} {
		_, err := answers.Parse()
		lines("Answers: ", err)
	}
	bad(rt.MaxBody < 0, "MaxBody is negative")
	bad(rt.Methods != nil && len(rt.Methods) == 0, "Methods is empty, so nothing would be guarded")
	bad(len(rt.Credential) == 0, "Credential is empty, so nobody could be told apart")
	for _, name := range rt.Credential {
		fault := credential.Fault(name)
		bad(fault != "", "Credential has %q, %s", name, fault)
	}
	for _, n := range rt.ScopeHeaders {
		bad(n == rt.KeyHeader || n != ScopeHost && slices.Contains(perDelivery, n), "ScopeHeaders has %s, which may differ between deliveries of one call", n)
	}
	bad(p.MaxKey < 1 || p.MaxKey > semel.MaxKeyLen || p.Marker == "" || p.ConflictStatus < 400 || p.ConflictStatus > 499, "profile %q needs MaxKey between 1 and %d, a Marker, and a ConflictStatus between 400 and 499", p.Name, semel.MaxKeyLen)
	bad(rt.Tx != nil && rt.FailOpen, "Tx and FailOpen exclude each other: while the store does not answer there is no transaction")
	bad(rt.Tx != nil && op.Confirmation != nil, "an operation that is to be confirmed can't run in a transaction")
	bad(p.NeverKeep5xx && op.OnFailure == semel.ReplayFailure, "profile %q forbids that a 5xx is kept, but OnFailure is replay", p.Name)
	bad(p.NeverKeep5xx && op.OnFailure == "" && op.Financial, "profile %q forbids that a 5xx is kept, but a financial operation keeps it: set OnFailure to retry", p.Name)
	for _, n := range rt.KeepHeaders {
		why := rt.neverKept(n)
		bad(why != "", "KeepHeaders has %s, %s", n, why)
	}
	for _, o := range rt.Origins {
		fault := origin.Fault(o)
		bad(fault != "", "Origins has %q, %s", o, fault)
	}
	_, err := rt.extract()
	lines("", err)
	for _, n := range rt.FingerprintHeaders {
		bad(n == rt.KeyHeader || slices.Contains(perDelivery, n), "FingerprintHeaders has %s, which may differ between deliveries of one call", n)
	}
	return errors.Join(errs...)
}

// perDelivery are request headers that belong to one delivery rather than to the call.
var perDelivery = []string{
	"Connection", "Content-Length", "Date", "Prefer", "Request-Id", "Traceparent", "Tracestate",
	"Transfer-Encoding", "X-Correlation-Id", "X-Request-Id",
}

// neverKept says why a header may not be replayed, or is empty.
func (rt *Route) neverKept(name string) string {
	why := answer.NeverKept(name)
	if why == "" && (name == rt.KeyHeader || name == rt.Profile.Marker) {
		why = "which the guard sets"
	}
	return why
}

// wrongSequence says that the route has a number but the operation doesn't, or the reverse.
func (rt *Route) wrongSequence(op *semel.Operation) error {
	if op.Sequenced {
		return fmt.Errorf("semelhttp: operation %q is sequenced, so its route needs Sequence", op.Name)
	}
	return fmt.Errorf("semelhttp: the route has Sequence, and operation %q isn't sequenced", op.Name)
}
