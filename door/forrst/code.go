package forrst

import (
	"net/http"
	"time"

	"github.com/semelhq/semel/door/judge"
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

// meaning is Forrst's explanation of a code. Package judge says what a code proves about the
// call.
type meaning struct {
	status int
	retry  *Retry // nil: asking again is pointless
}

var meanings = map[Code]meaning{
	ParseError:             {http.StatusBadRequest, nil},
	InvalidRequest:         {http.StatusBadRequest, nil},
	InvalidProtocolVersion: {http.StatusBadRequest, nil},
	FunctionNotFound:       {http.StatusNotFound, nil}, // not yet, or no longer, deployed
	VersionNotFound:        {http.StatusNotFound, nil},
	FunctionDisabled:       {http.StatusServiceUnavailable, retry(fixed, 30*time.Second, 2)},
	InvalidArguments:       {http.StatusBadRequest, nil},
	SchemaValidationFailed: {http.StatusUnprocessableEntity, nil},
	ExtensionNotSupported:  {http.StatusBadRequest, nil},
	ExtensionNotApplicable: {http.StatusBadRequest, nil},
	Unauthorized:           {http.StatusUnauthorized, nil},
	Forbidden:              {http.StatusForbidden, nil},
	NotFound:               {http.StatusNotFound, nil},
	Conflict:               {http.StatusConflict, nil},
	Gone:                   {http.StatusGone, nil},
	DeadlineExceeded:       {http.StatusRequestTimeout, retry(immediate, 0, 1)},
	RateLimited:            {http.StatusTooManyRequests, retry(fixed, time.Minute, 3)},
	InternalError:          {http.StatusInternalServerError, retry(exponential, time.Second, 3)},
	Unavailable:            {http.StatusServiceUnavailable, retry(exponential, time.Second, 5)},
	DependencyError:        {http.StatusBadGateway, retry(exponential, 2*time.Second, 3)},
	IdempotencyConflict:    {http.StatusConflict, nil},
	IdempotencyProcessing:  {http.StatusConflict, retry(fixed, time.Second, 3)},
	AsyncOperationNotFound: {http.StatusNotFound, nil},
	AsyncOperationFailed:   {http.StatusInternalServerError, nil},
	AsyncCannotCancel:      {http.StatusBadRequest, nil},
	BatchFailed:            {http.StatusBadRequest, nil},
	BatchTooLarge:          {http.StatusBadRequest, nil},
	BatchTimeout:           {http.StatusGatewayTimeout, retry(exponential, time.Second, 3)},
	ServerMaintenance:      {http.StatusServiceUnavailable, retry(fixed, time.Minute, 1)},
	FunctionMaintenance:    {http.StatusServiceUnavailable, retry(fixed, time.Minute, 1)},
	ReplayNotFound:         {http.StatusNotFound, nil},
	ReplayExpired:          {http.StatusGone, nil},
	ReplayAlreadyComplete:  {http.StatusConflict, nil},
	ReplayCancelled:        {http.StatusGone, nil},
}

// meaning returns the meaning of the error's code; if Forrst doesn't have the code, the error's
// status decides.
func (e *Error) meaning() meaning {
	if m, ok := meanings[e.Code]; ok {
		return m
	}
	m := meaning{status: e.Status}
	if m.status < 400 || m.status > 599 {
		m.status = http.StatusBadRequest
	}
	return m
}

// statusOf returns the HTTP status for errors; several together always get 400.
func statusOf(errs Errors) int {
	if len(errs) != 1 {
		return http.StatusBadRequest
	}
	return errs[0].meaning().status
}

// judged returns what errors together prove about their call. header belongs to the answer that
// they came in, if they did.
func judged(rules *judge.Rules, errs Errors, header http.Header) judge.Finding {
	found := judge.Finding{Verdict: judge.Rejected}
	for i, e := range errs {
		f := rules.Forrst(string(e.Code), e.meaning().status, header)
		if i == 0 {
			found = f
		}
		found = judge.Worst(found, f)
	}
	return found
}

// Retry is the data of the retry extension: whether and when to ask again.
type Retry struct {
	Allowed bool `json:"allowed"`
	// Strategy is immediate, fixed or exponential.
	Strategy string `json:"strategy,omitempty"`
	// After is the shortest pause; nil: none.
	After *Duration `json:"after,omitempty"`
	// MaxAttempts is the most attempts.
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

// retryOf returns the retry guidance for errors; nil if one of them makes asking again
// pointless. If there are several, it is the first one's.
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
