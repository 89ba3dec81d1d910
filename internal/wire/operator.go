package wire

import "github.com/semelhq/semel/store"

// Page is one page of records, the newest first.
type Page struct {
	Records []Record `json:"records" nullable:"false"`
	Next    string   `json:"next,omitempty" doc:"Continues the search. Absent at its end. A page may be short, or empty, before the end."`
	// Unreadable is for callers who see all tenants, because these
	// records don't say which tenant they belong to.
	Unreadable []string `json:"unreadable,omitempty" doc:"Of each record in this part of the store that can't be read, why. Only for callers who see all tenants."`
}

// Seen is an operator's word about a record that they have seen.
type Seen struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
	Fence  int64  `json:"fence,omitempty" minimum:"0" doc:"The fence of the record that you have seen; if it has another by now, nothing is changed. Absent: whatever record there is."`
}

// Settling is an operator's settlement of a held record.
type Settling struct {
	Outcome store.Disposition `json:"outcome,omitzero" enum:"completed,rejected,failed,aborted" doc:"How the attempt ended. Absent: only effects are settled; if none is open then, the next delivery runs again."`
	Result
	Status      int                 `json:"status,omitempty" minimum:"200" maximum:"599" doc:"For a call that came as an HTTP request: the status that duplicates get."`
	Headers     map[string][]string `json:"headers,omitempty" doc:"The headers that they get, each with a list of values."`
	Answer      *string             `json:"body,omitempty" doc:"The body that they get, as text."`
	AnswerBytes *string             `json:"body_base64,omitempty" doc:"The same as bytes, in base64."`
	Error       *Failure            `json:"error,omitempty"`
	Effects     []Finding           `json:"effects,omitempty" maxItems:"1000" nullable:"false" doc:"What became of effects that were started and have no result."`
	Messages    []Sending           `json:"messages,omitempty" maxItems:"100" nullable:"false" doc:"What the call sends, for the outcome completed."`
	Seen
	Force bool `json:"force,omitempty" doc:"Also if this service doesn't have the operation, or has a route for it and the result isn't an HTTP answer."`
}

// Purging is the removal of a record.
type Purging struct {
	Seen
	Force         bool `json:"force,omitempty" doc:"Also if this service doesn't have the operation."`
	EraseEvidence bool `json:"erase_evidence,omitempty" doc:"Also erase what the evidence log says in plain text about the record, of this removal too, and what conflicts, figures and feeds of all nodes say about it."`
}

// Forced changes a record even if this service doesn't have its operation.
type Forced struct {
	Seen
	Force bool `json:"force,omitempty" doc:"Also if this service doesn't have the operation."`
}
