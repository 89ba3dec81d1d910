package wire

import (
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Problem is a refusal (RFC 9457).
type Problem struct {
	Type   string     `json:"type" format:"uri-reference" doc:"Where the code is explained, on this server." example:"/problems/in_flight"`
	Title  string     `json:"title" doc:"Names the problem, the same for every problem with this code."`
	Status int        `json:"status" doc:"The HTTP status."`
	Detail string     `json:"detail" doc:"What happened to this request."`
	Code   semel.Code `json:"code" doc:"The stable name of the problem." example:"in_flight"`
	// Action is the same for every problem with this code.
	Action store.Action `json:"action,omitempty" enum:"wait,verify,fix_request,new_key,stop" doc:"What a program or a model does next. wait: send the same again, after retry_after. verify: find out what happened first. fix_request: correct the request. new_key: what differs is another call. stop: nothing helps." example:"wait"`
	Limit  semel.Limit  `json:"limit,omitempty" enum:"duplicates,principal_records,principal_bytes,tenant_records,tenant_bytes,unverified_holds,aborted_calls" doc:"What the call was throttled by."`
	// LastSequence is the newest number, for a superseded call.
	LastSequence uint64 `json:"last_sequence,omitempty" doc:"The newest number of the sequence that the call belongs to."`
	// ExpectedSequence is the number to send next, if the sequence has a gap.
	ExpectedSequence uint64 `json:"expected_sequence,omitempty" doc:"The number of the sequence that comes next."`
	// RetryAfter is rounded up to whole seconds.
	RetryAfter int64      `json:"retry_after,omitempty" doc:"Seconds after which asking again makes sense."`
	Record     string     `json:"record,omitempty" doc:"The record that the problem is about."`
	Challenge  *Challenge `json:"challenge,omitempty" doc:"What confirms the call."`
	Errors     []Mistake  `json:"errors,omitempty" nullable:"false" doc:"What is wrong with the request, and where."`
}

// Mistake is one fault of a request.
type Mistake struct {
	Location string `json:"location" doc:"Such as body.items[3].key, query.q or header.Idempotency-Key."`
	Message  string `json:"message"`
}

// Challenge is what a caller needs to confirm a call.
type Challenge struct {
	Token     string    `json:"token" doc:"To be sent as confirm, with the same call. It is shown once."`
	ExpiresAt time.Time `json:"expires_at"`
	StepUp    bool      `json:"step_up,omitempty" doc:"A further proof is needed, as step_up."`
}
