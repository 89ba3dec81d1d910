package forrst

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/selector"
)

// Error is one error of an answer. Functions return one, or [Errors] for several.
type Error struct {
	// Code names the fault for programs.
	Code Code `json:"code"`
	// Message explains it to people.
	Message string `json:"message"`
	// Source is the place of the error in the request. Optional.
	Source *Source `json:"source,omitempty"`
	// Details is any JSON object. Optional.
	Details any `json:"details,omitempty"`
	// Status is the HTTP status for a code that Forrst doesn't have, from 400 to 599. Defaults
	// to 400. It also decides what the error proves about the call; package judge has the
	// table.
	Status int `json:"-"`
	// RetryAfter is when asking again makes sense, if the code allows that. Zero: Forrst's
	// default for the code.
	RetryAfter time.Duration `json:"-"`
}

// Source is the place of an error in a request. It has one of its members.
type Source struct {
	// Pointer is a JSON Pointer (RFC 6901) from the root of the request.
	Pointer string `json:"pointer,omitempty"`
	// Position is the offset of a byte, from zero.
	Position *int `json:"position,omitempty"`
}

// maxErrors is the most errors of an answer, and maxPointer the longest name in a pointer, in
// bytes: an answer should not be larger than its request.
const (
	maxErrors  = 20
	maxPointer = 256
)

// At returns the source for a pointer of these member names and indexes.
func At(path ...string) *Source {
	var b strings.Builder
	for _, name := range path {
		if len(name) > maxPointer {
			break // the object that contains it has to do
		}
		b.WriteByte('/')
		b.WriteString(selector.Escape(name))
	}
	return &Source{Pointer: b.String()}
}

// Error returns one line, without the details.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Message
	if e.Source != nil && e.Source.Pointer != "" {
		text = string(e.Code) + " at " + e.Source.Pointer + ": " + e.Message
	}
	return text
}

// Errors are all the errors of an answer.
type Errors []*Error

// Error returns all of them in one line.
func (list Errors) Error() string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them one by one.
func (list Errors) Unwrap() []error {
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errs
}

// add adds an error, unless there are already maxErrors.
func (list *Errors) add(code Code, at *Source, format string, args ...any) *Error {
	e := &Error{Code: code, Message: fmt.Sprintf(format, args...), Source: at}
	if len(*list) < maxErrors {
		*list = append(*list, e)
	}
	return e
}

// detailed gives the first error its details.
func (list Errors) detailed(details any) Errors {
	list[0].Details = details
	return list
}

func one(code Code, at *Source, format string, args ...any) Errors {
	var list Errors
	list.add(code, at, format, args...)
	return list
}

// recordedErrors is the recorded form of errors.
type recordedErrors struct {
	Status int             `json:"status"`
	Errors json.RawMessage `json:"errors"`
}
