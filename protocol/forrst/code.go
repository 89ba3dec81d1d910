package forrst

import (
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Code is the code of an error, in capitals with underscores. Applications may have
// codes of their own.
type Code string

// The codes of Forrst 0.1.0.
const (
	ParseError             Code = "PARSE_ERROR"
	InvalidRequest         Code = "INVALID_REQUEST"
	InvalidProtocolVersion Code = "INVALID_PROTOCOL_VERSION"
	FunctionNotFound       Code = "FUNCTION_NOT_FOUND"
	VersionNotFound        Code = "VERSION_NOT_FOUND"
	FunctionDisabled       Code = "FUNCTION_DISABLED"
	InvalidArguments       Code = "INVALID_ARGUMENTS"
	SchemaValidationFailed Code = "SCHEMA_VALIDATION_FAILED"
	ExtensionNotSupported  Code = "EXTENSION_NOT_SUPPORTED"
	ExtensionNotApplicable Code = "EXTENSION_NOT_APPLICABLE"
	Unauthorized           Code = "UNAUTHORIZED"
	Forbidden              Code = "FORBIDDEN"
	NotFound               Code = "NOT_FOUND"
	Conflict               Code = "CONFLICT"
	Gone                   Code = "GONE"
	DeadlineExceeded       Code = "DEADLINE_EXCEEDED"
	RateLimited            Code = "RATE_LIMITED"
	InternalError          Code = "INTERNAL_ERROR"
	Unavailable            Code = "UNAVAILABLE"
	DependencyError        Code = "DEPENDENCY_ERROR"
	IdempotencyConflict    Code = "IDEMPOTENCY_CONFLICT"
	IdempotencyProcessing  Code = "IDEMPOTENCY_PROCESSING"
	AsyncOperationNotFound Code = "ASYNC_OPERATION_NOT_FOUND"
	AsyncOperationFailed   Code = "ASYNC_OPERATION_FAILED"
	AsyncCannotCancel      Code = "ASYNC_CANNOT_CANCEL"
	BatchFailed            Code = "BATCH_FAILED"
	BatchTooLarge          Code = "BATCH_TOO_LARGE"
	BatchTimeout           Code = "BATCH_TIMEOUT"
	ServerMaintenance      Code = "SERVER_MAINTENANCE"
	FunctionMaintenance    Code = "FUNCTION_MAINTENANCE"
	ReplayNotFound         Code = "REPLAY_NOT_FOUND"
	ReplayExpired          Code = "REPLAY_EXPIRED"
	ReplayAlreadyComplete  Code = "REPLAY_ALREADY_COMPLETE"
	ReplayCancelled        Code = "REPLAY_CANCELLED"
)

// How an attempt ends whose function returned an error with a code.
const (
	final  = semel.DispositionRejected // about the call itself: recorded and replayed
	failed = semel.DispositionFailed   // Operation.OnFailure decides
	never  = semel.DispositionAborted  // says nothing about the call: the next delivery runs
)

// meaning is what is known of a code.
type meaning struct {
	status int
	end    store.Disposition
	retry  *Retry // nil: asking again is of no use
}

var meanings = map[Code]meaning{
	ParseError:             {http.StatusBadRequest, never, nil},
	InvalidRequest:         {http.StatusBadRequest, never, nil},
	InvalidProtocolVersion: {http.StatusBadRequest, never, nil},
	FunctionNotFound:       {http.StatusNotFound, never, nil}, // not yet, or no longer, deployed
	VersionNotFound:        {http.StatusNotFound, never, nil},
	FunctionDisabled:       {http.StatusServiceUnavailable, never, retry(fixed, 30*time.Second, 2)},
	InvalidArguments:       {http.StatusBadRequest, final, nil},
	SchemaValidationFailed: {http.StatusUnprocessableEntity, final, nil},
	ExtensionNotSupported:  {http.StatusBadRequest, never, nil},
	ExtensionNotApplicable: {http.StatusBadRequest, never, nil},
	Unauthorized:           {http.StatusUnauthorized, never, nil},
	Forbidden:              {http.StatusForbidden, never, nil},
	NotFound:               {http.StatusNotFound, final, nil},
	Conflict:               {http.StatusConflict, final, nil},
	Gone:                   {http.StatusGone, final, nil},
	DeadlineExceeded:       {http.StatusRequestTimeout, failed, retry(immediate, 0, 1)},
	RateLimited:            {http.StatusTooManyRequests, never, retry(fixed, time.Minute, 3)},
	InternalError:          {http.StatusInternalServerError, failed, retry(exponential, time.Second, 3)},
	Unavailable:            {http.StatusServiceUnavailable, failed, retry(exponential, time.Second, 5)},
	DependencyError:        {http.StatusBadGateway, failed, retry(exponential, 2*time.Second, 3)},
	IdempotencyConflict:    {http.StatusConflict, never, nil},
	IdempotencyProcessing:  {http.StatusConflict, never, retry(fixed, time.Second, 3)},
	AsyncOperationNotFound: {http.StatusNotFound, final, nil},
	AsyncOperationFailed:   {http.StatusInternalServerError, failed, nil},
	AsyncCannotCancel:      {http.StatusBadRequest, final, nil},
	BatchFailed:            {http.StatusBadRequest, final, nil},
	BatchTooLarge:          {http.StatusBadRequest, final, nil},
	BatchTimeout:           {http.StatusGatewayTimeout, failed, retry(exponential, time.Second, 3)},
	ServerMaintenance:      {http.StatusServiceUnavailable, never, retry(fixed, time.Minute, 1)},
	FunctionMaintenance:    {http.StatusServiceUnavailable, never, retry(fixed, time.Minute, 1)},
	ReplayNotFound:         {http.StatusNotFound, final, nil},
	ReplayExpired:          {http.StatusGone, final, nil},
	ReplayAlreadyComplete:  {http.StatusConflict, final, nil},
	ReplayCancelled:        {http.StatusGone, final, nil},
}

// meaning is that of the error's code; for one that Forrst doesn't have, what its status
// says.
func (e *Error) meaning() meaning {
	if m, ok := meanings[e.Code]; ok {
		return m
	}
	m := meaning{status: e.Status, end: final}
	if m.status < 400 || m.status > 599 {
		m.status = http.StatusBadRequest
	}
	switch {
	case m.status >= 500 || m.status == http.StatusRequestTimeout:
		m.end = failed
	case m.status == http.StatusUnauthorized, m.status == http.StatusForbidden, m.status == http.StatusTooEarly, m.status == http.StatusTooManyRequests:
		m.end = never
	}
	return m
}

// statusOf is the status of HTTP for errors; several together are always 400.
func statusOf(errs Errors) int {
	if len(errs) != 1 {
		return http.StatusBadRequest
	}
	return errs[0].meaning().status
}

// endOf is how an attempt with these errors ends: a failure among them counts most, and
// one that says nothing about the call more than those that do.
func endOf(errs Errors) store.Disposition {
	end := final
	for _, e := range errs {
		switch m := e.meaning(); {
		case m.end == failed:
			return failed
		case m.end == never:
			end = never
		}
	}
	return end
}

// Retry is the data of the retry extension: whether and when asking again makes sense.
type Retry struct {
	Allowed bool `json:"allowed"`
	// Strategy is immediate, fixed or exponential.
	Strategy string `json:"strategy,omitempty"`
	// After is the least pause; nil: none.
	After *Duration `json:"after,omitempty"`
	// MaxAttempts is how often at most.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// The strategies.
const (
	immediate   = "immediate"
	fixed       = "fixed"
	exponential = "exponential"
)

func retry(strategy string, after time.Duration, attempts int) *Retry {
	r := &Retry{Allowed: true, Strategy: strategy, MaxAttempts: attempts}
	if after > 0 {
		d := seconds(after)
		r.After = &d
	}
	return r
}

// retryOf is the retry guidance for errors; nil if one of them makes asking again
// useless. Of several it is that of the first.
func retryOf(errs Errors) *Retry {
	var guidance *Retry
	for _, e := range errs {
		m := e.meaning().retry
		if m == nil {
			return nil
		}
		if guidance == nil {
			r := *m
			if e.RetryAfter > 0 {
				after := seconds(e.RetryAfter)
				r.After = &after
			}
			guidance = &r
		}
	}
	return guidance
}
