package wire

import "time"

// OfAttempt says which attempt an event is about.
type OfAttempt struct {
	Record    string `json:"record"`
	Tenant    string `json:"tenant"`
	Operation string `json:"operation"`
	Attempt   int    `json:"attempt"`
	Fence     int64  `json:"fence"`
}

// DecidedEvent is the decision on a delivery, in the stream of decisions.
type DecidedEvent struct {
	OfAttempt
	Decision   string    `json:"decision" enum:"execute,replay,in_flight,conflict,held,too_late,throttled,other_door,other_caller,superseded,sequence_gap"`
	Status     string    `json:"status,omitempty"`
	RetryAfter int64     `json:"retry_after_ms,omitempty"`
	Limit      string    `json:"limit,omitempty" enum:"duplicates,principal_records,principal_bytes,tenant_records,tenant_bytes,unverified_holds,aborted_calls" doc:"What the delivery was throttled by."`
	Waited     int64     `json:"waited_ms,omitempty"`
	At         time.Time `json:"at,omitzero"`
}

// EndedEvent is the end of an attempt.
type EndedEvent struct {
	OfAttempt
	Disposition string    `json:"disposition,omitempty"`
	Held        bool      `json:"held,omitempty"`
	HeldReason  string    `json:"held_reason,omitempty"`
	Took        int64     `json:"took_ms"`
	By          string    `json:"by" enum:"holder,reaper,reconciler,operator"`
	Reason      string    `json:"reason,omitempty"`
	At          time.Time `json:"at,omitzero"`
}

// PurgedEvent is the purge of one record by an operator, or of many that had expired.
type PurgedEvent struct {
	Count     int       `json:"count"`
	Record    string    `json:"record,omitempty" doc:"Set if an operator purged one record."`
	Tenant    string    `json:"tenant,omitempty"`
	Operation string    `json:"operation,omitempty"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	At        time.Time `json:"at"`
}

// LeaseLostEvent says that the holder of an attempt lost its lease.
type LeaseLostEvent struct {
	OfAttempt
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// GapEvent says that the events between its two numbers were lost.
type GapEvent struct {
	After int64 `json:"after" doc:"The last event that the reader had."`
	Next  int64 `json:"next" doc:"The next one that is available."`
}
