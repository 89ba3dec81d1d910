package commerce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	rules "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/store"
)

// request is one request until it is answered.
type request struct {
	*Service
	w      http.ResponseWriter
	r      *http.Request
	caller Caller
	status int             // the answer's, if it isn't a refusal
	event  semel.Delivered // for the engine's
}

// answer identifies the caller, serves the request and writes the answer. It reports false if
// whoever refused the body has already answered.
func (q *request) answer(serve func(*request) (any, error)) bool {
	var doc any
	err := q.identify()
	if err == nil {
		doc, err = serve(q)
	}
	switch {
	case errors.Is(err, body.ErrRefused):
		return false
	case err != nil:
		q.refuse(err)
	case doc == nil:
		q.event.Status = http.StatusNoContent
		q.w.Header().Set("Cache-Control", "no-store")
		q.w.WriteHeader(http.StatusNoContent)
	default:
		q.event.Status = q.status
		problem.WriteAs(q.w, q.status, "application/json", doc)
	}
	return true
}

// identify finds the caller.
func (q *request) identify() (err error) {
	q.caller, err = q.opts.Identify(q.r)
	if e, ok := errors.AsType[*semel.Error](err); err == nil && q.caller.Principal != "" || ok && e.Code == semel.CodeStoreUnavailable {
		return err
	}
	challenge := "Bearer"
	if q.opts.Challenge != nil && err != nil {
		challenge = q.opts.Challenge(err)
	}
	q.w.Header().Set("WWW-Authenticate", challenge)
	return &semel.Error{Code: door.CodeUnauthorized, Err: err}
}

// user returns the user that a request is about: the caller, or a user named by a caller who
// acts for users.
func (q *request) user(named string) (string, error) {
	switch {
	case named == "" || named == q.caller.Principal:
		return q.caller.Principal, nil
	case !q.caller.acts():
		return "", q.backEnd()
	case strings.Contains(named, store.ScopeMark) || semelhttp.DerivedPrincipal(named):
		return "", invalid("the user has a name that no user can have")
	}
	return named, nil
}

// owner returns the user in the parameter user. The address may have only that parameter and others.
func (q *request) owner(others ...string) (string, error) {
	params := q.r.URL.Query()
	for name, values := range params {
		if name != "user" && !slices.Contains(others, name) || len(values) != 1 {
			return "", invalid("the address has the parameter %.64q, which isn't known here, or twice", name)
		}
	}
	return q.user(params.Get("user"))
}

// backEnd refuses a caller who doesn't act for users.
func (q *request) backEnd() error {
	if q.caller.acts() {
		return nil
	}
	return &semel.Error{Code: semel.CodeForbidden, Message: "this needs the right " + RightUsers}
}

// The bounds of a body. Each value in it takes many times its bytes to read; a cart may have some
// 2,400 lines.
const (
	maxBody   = 1 << 20
	maxValues = 10_000
)

// text reads the body: strict JSON in UTF-8, bounded.
func (q *request) text() ([]byte, error) {
	if !body.IsJSON(q.r.Header) {
		q.w.Header().Set("Connection", "close") // rather than wait for the rest of the body
		return nil, &semel.Error{Code: door.CodeUnsupportedMedia}
	}
	text, err := body.Read(q.w, q.r, maxBody)
	switch {
	case errors.Is(err, body.ErrTooLong):
		return nil, &semel.Error{Code: door.CodeTooLarge}
	case errors.Is(err, body.ErrRefused):
		return nil, err
	case err != nil:
		return nil, &semel.Error{Code: door.CodeBodyUnreadable}
	}
	if n := jsonscan.Values(text); n > maxValues {
		return nil, invalid("the body has %d members and items, more than %d", n, maxValues)
	}
	if err := canon.Check(text, canon.Exact); err != nil {
		return nil, invalid("the body isn't strict JSON: %v", err)
	}
	return text, nil
}

// read reads the body into a struct. It accepts only exact names: package json takes USER for
// user, and so the last of both.
func (q *request) read(into any) error {
	text, err := q.text()
	if err != nil {
		return err
	}
	var known []string
	for f := range reflect.TypeOf(into).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	for name := range jsonscan.Members(text) {
		if !slices.Contains(known, string(name)) {
			return invalid("the body has the member %.64q, and may have %s", name, strings.Join(known, ", "))
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return invalid("the body isn't an object, or a member has another type")
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &semel.Error{Code: semel.CodeInvalidCall, Message: fmt.Sprintf(format, args...)}
}

// checked turns a package's error about its arguments, which the engine doesn't have, into a
// refusal of the request.
func checked(err error) error {
	if _, engines := errors.AsType[*semel.Error](err); err == nil || engines || errors.Is(err, rules.ErrMandateExpired) {
		return err
	}
	return invalid("%s", err)
}

// coded returns the code of an error, and words for callers; without words of its own, the table's.
func coded(err error) (code semel.Code, words string) {
	switch e, _ := errors.AsType[*semel.Error](err); {
	case errors.Is(err, session.ErrSealed):
		return door.CodeInternal, "The session's token can't be decrypted. Add the key that encrypted it to the service, or end the session."
	case errors.Is(err, rules.ErrMandateExpired):
		return door.CodeMandateExpired, ""
	case errors.Is(err, datasync.ErrVersion), errors.Is(err, datasync.ErrFull):
		return door.CodeVersionDiffers, err.Error()
	case errors.Is(err, datasync.ErrAhead):
		return semel.CodeInvalidCall, err.Error()
	case e != nil && e.Code != door.CodeInternal:
		words = e.Message
	}
	return door.CodeOf(err), words
}

// refuse writes an error as a problem. Nothing was executed, unless the problem says so.
func (q *request) refuse(err error) {
	code, words := coded(err)
	m, _ := door.Lookup(code)
	p := semelhttp.NewProblem(q.opts.TypeBase, code, "")
	if words != "" {
		words = strings.TrimPrefix(strings.TrimPrefix(words, "datasync: "), "commerce: ")
		p.Detail = strings.TrimSpace(problem.Sentence(words) + " " + m.HTTPAction())
	}
	retry := m.Retry
	if e, ok := errors.AsType[*semel.Error](err); ok {
		retry = max(retry, e.RetryAfter)
	}
	if m.Code == semel.CodeInFlight {
		retry = cmp.Or(retry, time.Second)
	}
	if retry > 0 {
		p.Retryable, p.RetryAfter = true, problem.RetryAfter(q.w.Header(), retry)
	}
	door.SetEffect(q.w.Header(), m.Effect)
	q.event.Code, q.event.Status, q.event.Err = m.Code, m.Status, err
	problem.Write(q.w, p.Status, p)
}
