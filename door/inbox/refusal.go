package inbox

import (
	"fmt"
	"time"
)

// Code is the stable name of a reason for a [Refusal].
type Code string

// The codes that an inbox uses.
const (
	// CodeUnreadable: the message doesn't come from an inbox.
	CodeUnreadable Code = "unreadable"
	// CodeTooLong: the item can't be kept.
	CodeTooLong Code = "too_long"
	// codeConflict is why an item is parked whose key came with other content before.
	codeConflict = "conflict"
)

// Refusal says why an item isn't accepted, or can't be handled, and never will be. Park its
// message.
type Refusal struct {
	Code Code
	Err  error
}

// Refuse makes a refusal.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Errorf(format, args...)}
}

// Error returns one line, without secrets and payloads.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Later is an error of [Inbox.Work] that says when to try again.
type Later struct {
	After time.Duration
	Err   error
}

// Error returns the cause's text.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the cause.
func (l *Later) Unwrap() error { return l.Err }
