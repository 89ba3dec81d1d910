package cli

import (
	"errors"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
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
		return &exitError{ExitUnavailable, fmt.Errorf("that is not the admin listener of a Semel service: %w. 'semel serve' logs its address, which has no path, as admin", a)}
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
	case semel.CodeStoreUnavailable, semel.CodeUnknown, semel.CodeClosed, semel.CodeThrottled, door.CodeOverloaded, door.CodeInternal:
		return &exitError{ExitUnavailable, err}
	case semel.CodeInvalidCall:
		return &usageError{err}
	}
	return err
}

// exitOf is the exit code of a command that ends with an error from the records.
func exitOf(err error) int {
	if e, ok := errors.AsType[*exitError](exitWith(err)); ok {
		return e.code
	}
	return ExitCheck
}

// ofExits explains the exit codes of the commands, the first of which is 0.
var ofExits = []door.Meaning{
	ExitOK: {Code: "exit_0", Title: "Exit code 0: done",
		Meaning: "The command did what it was asked for, or the check found nothing.", Action: "Nothing."},
	ExitCheck: {Code: "exit_1", Title: "Exit code 1: a check failed, or the work could not be done",
		Meaning: "What was checked is wrong, such as a configuration, a log or a service that isn't ready; or something else kept the command from its work.",
		Action:  "Read what standard error, or the list on standard output, says."},
	ExitUsage: {Code: "exit_2", Title: "Exit code 2: wrong command line",
		Meaning: "The command line is wrong: an unknown flag, a missing argument, a file that isn't there. Nothing was done.",
		Action:  "Read the message, and the command's --help."},
	ExitNotFound: {Code: "exit_3", Title: "Exit code 3: not found",
		Meaning: "There is no such call, message or entry, or it isn't yours to see. Its window may be over.",
		Action:  "Look for it with 'semel records list'. The evidence log knows calls whose records are gone: 'semel evidence show'."},
	ExitConflict: {Code: "exit_4", Title: "Exit code 4: not in that state",
		Meaning: "The call or message isn't in a state that allows this, or somebody changed it meanwhile. Nothing was changed.",
		Action:  "Look at it with 'semel why', and decide anew."},
	ExitUnavailable: {Code: "exit_5", Title: "Exit code 5: in use, out of reach, or unknown",
		Meaning: "Another process has the store open, or the service or store didn't answer. If you wanted to change something, it may have been changed.",
		Action:  "Look with 'semel why' whether it was changed before you do it again. Name the service with --url, or add a context."},
}
