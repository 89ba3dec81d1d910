package cli

import (
	"errors"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

// Further exit codes, of commands that work on records.
const (
	ExitNotFound    = 3 // there is no such record
	ExitConflict    = 4 // the record's state doesn't allow it, or it was changed meanwhile
	ExitUnavailable = 5 // the store or the service is in use, out of reach, or didn't say what happened
)

// An exitError ends a command with a special exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// notFound is the error of a command that looked for something.
func notFound(format string, args ...any) error {
	return &exitError{ExitNotFound, fmt.Errorf(format, args...)}
}

// exitWith gives an error its exit code, by what happened to the record.
func exitWith(err error) error {
	if a, ok := errors.AsType[*client.AnswerError](err); ok {
		return &exitError{ExitUnavailable, fmt.Errorf("that is not the admin listener of a Semel service: %w. 'semel serve' logs its address as admin", a)}
	}
	e, ok := errors.AsType[*semel.Error](err)
	if !ok {
		return err
	}
	switch e.Code {
	case semel.CodeNotFound:
		return &exitError{ExitNotFound, err}
	case semel.CodeIllegalTransition, semel.CodeAlreadyEnded, semel.CodeConflict, semel.CodeOtherCaller, semel.CodeInFlight, semel.CodeHeld, semel.CodeLeaseLost:
		return &exitError{ExitConflict, err}
	case semel.CodeStoreUnavailable, semel.CodeUnknown, semel.CodeClosed, semel.CodeThrottled:
		return &exitError{ExitUnavailable, err}
	case semel.CodeInvalidCall:
		return &usageError{err}
	}
	return err
}
