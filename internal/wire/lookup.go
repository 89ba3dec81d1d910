package wire

import "github.com/semelhq/semel/store"

// Lookup is a page of the calls that have a text as a name.
type Lookup struct {
	Found []Named `json:"found" nullable:"false" doc:"The calls, the newest first. A call may come again on a later page."`
	Gone  []Gone  `json:"gone,omitempty" nullable:"false" doc:"Calls that only the evidence log knows: their records were purged or have expired."`
	// Verdict is empty while nothing is found and there is more to search.
	Verdict  string   `json:"verdict,omitempty" doc:"The answer for all calls of the page in one sentence. Absent while nothing was found and there is more to search."`
	Searched Searched `json:"searched" doc:"What this page has looked through."`
	Complete bool     `json:"complete" doc:"Whether this page, with those before it, has searched everything. Only then a call that wasn't found isn't there."`
	Next     string   `json:"next,omitempty" doc:"Continues the search. Absent at its end. A page may be empty before the end."`
}

// Named is a call, with the names that matched.
type Named struct {
	Record Record   `json:"record"`
	By     []string `json:"by" nullable:"false" doc:"Its names that were asked for: record, execution, reference, log, key, trace, message, effect, delivery (the request id of a later delivery), evidence (an id that the log knows), command_id, correlation_id, request_id, event_id, transaction_id, attribute:NAME for NAME=VALUE, or value:NAME for the value alone."`
}

// Gone is a call without a record.
type Gone struct {
	Record string `json:"record" doc:"The id that the record had."`
	Owner
	Operation string `json:"operation"`
	Key       string `json:"idempotency_key"`
}

// Searched says what a page of a look-up has searched.
type Searched struct {
	By      []string      `json:"by" nullable:"false" doc:"What it has looked through to the end: attributes, keys, deliveries, evidence, and records, which is every name of every record."`
	Records int           `json:"records" doc:"How many records it compared by every name, from the newest on."`
	BackTo  store.Instant `json:"back_to,omitzero" format:"date-time" doc:"When the oldest of them was created."`
}
