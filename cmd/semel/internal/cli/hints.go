package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// hintFor says what to do about an error, by its kind; empty if only the error itself can. Most
// errors come from far below the command line, where nobody knows what you can type.
func hintFor(err error) string {
	var code semel.Code
	if e, ok := errors.AsType[*semel.Error](err); ok {
		code = e.Code
	}
	switch {
	case code == door.CodeUnauthorized:
		return "Give your token in a file with --token-file, or in the variable SEMEL_TOKEN; a context can name the file.\n"
	case code == semel.CodeForbidden:
		return "Use another token (--token-file, SEMEL_TOKEN), or ask whoever runs the service to give yours that role in auth.\n"
	case code == semel.CodeIllegalTransition:
		return "'semel why NAME' shows what happened to the call, and what you can do next.\n"
	case strings.Contains(err.Error(), "'semel "), strings.Contains(err.Error(), "newest checkpoint"): // it says what to do, or that nothing can be done
	case exitOf(err) == ExitNotFound:
		return "Check the spelling, or look through 'semel records list' and 'semel messages list'.\n"
	case errors.Is(err, syscall.EADDRINUSE):
		return "Stop the program that listens there, or choose another address: --listen for callers, --admin for operators.\n"
	case unreached(err):
		return "Start what should answer there, or name another place: a service with --url, --context or SEMEL_URL, a store with --store or --config.\n"
	case errors.Is(err, fs.ErrNotExist):
		dir, _ := os.Getwd()
		return "Check the name; relative ones are looked for in " + dir + ".\n"
	}
	return ""
}

// unreached reports whether an error is that nobody could be connected to.
func unreached(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	_, unnamed := errors.AsType[*net.DNSError](err)
	return ok && dial.Op == "dial" || unnamed
}

// missing is the error of a file or directory that isn't there.
type missing string

func (m missing) Error() string        { return string(m) }
func (m missing) Is(target error) bool { return target == fs.ErrNotExist }

// noFile is the usage error of a file that isn't there.
func noFile(name string) error { return &usageError{missing("there is no file " + name)} }
