package semelhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
)

// Name marks records with a result that is an [Answer]. See [semel.Call].Door.
const Name = "http"

// Answer is what duplicates of a guarded request get: the HTTP answer in a record. Use it to
// settle held records, or to show what a record has.
type Answer struct {
	// Status is the answer's status, from 200 to 599.
	Status int
	// Header has the replayed headers. It has none that belong to one delivery or one
	// connection, such as Set-Cookie and Date.
	Header http.Header
	Body   []byte
}

// Result returns the answer in the form that records keep. It refuses a status that no final
// answer has, and headers that can't be sent or may not be replayed.
func (a *Answer) Result() (semel.Result, error) {
	if a.Status < 200 || a.Status > 599 {
		return semel.Result{}, fmt.Errorf("the status is %d, not one from 200 to 599", a.Status)
	}
	if len(a.Body) > 0 && !bodyAllowed(a.Status) {
		return semel.Result{}, fmt.Errorf("an answer with status %d has no body", a.Status)
	}
	rt := Route{}.withDefaults()
	header := http.Header{}
	for name, values := range a.Header {
		canonical := http.CanonicalHeaderKey(name)
		if why := rt.neverKept(canonical); why != "" {
			return semel.Result{}, fmt.Errorf("the header %q, %s, can't be replayed", name, why)
		}
		if i := slices.IndexFunc(values, func(v string) bool { return strings.ContainsAny(v, "\r\n\x00") }); i >= 0 {
			return semel.Result{}, fmt.Errorf("the value of the header %q is more than one line", name)
		}
		header[canonical] = append(header[canonical], values...)
	}
	return NewResult(a.Status, header, a.Body), nil
}

// NewResult makes the result that duplicates get. Use it to settle a held record if you
// know what the handler would have answered. It leaves out headers that may not be
// replayed; of the others, duplicates get the ones that their route keeps.
func NewResult(status int, header http.Header, body []byte) semel.Result {
	rt := Route{}.withDefaults()
	for name := range header {
		if rt.neverKept(name) == "" && !answer.Kept(name) {
			rt.KeepHeaders = append(rt.KeepHeaders, name)
		}
	}
	slices.Sort(rt.KeepHeaders)
	return semel.Result{Data: append(answer.AppendHead(nil, status, answer.Headers{}.Add(header), nil, "", rt.KeepHeaders), body...)}
}

// ParseAnswer returns the answer in a result. It reports false if the result isn't an HTTP
// answer, or is missing. If the record has just the status, there are neither headers nor a
// body.
func ParseAnswer(res semel.Result) (Answer, bool) {
	stored, err := answer.Parse(res.Data)
	if err != nil {
		return Answer{}, false
	}
	a := Answer{Status: stored.Status, Header: http.Header{}, Body: stored.Body}
	if stored.Stream {
		a.Body = nil // it is a stream beside the record
	}
	stored.Set(a.Header, "", stored.Others(), 0)
	return a, true
}

// Marked reports whether the record came through this door, so that its result is an
// [Answer].
func Marked(rec *semel.Record) bool { return rec.Door == Name }

// Serves reports whether a handler of the guard executes calls of an operation.
func (g *Guard) Serves(operation string) bool { return g.handlerOf(operation) != nil }
