package wire

import "encoding/json"

// MaxEvidence is how many entries of the evidence log a page has at most.
const MaxEvidence = 1000

// Evidence is what the evidence log says about a call.
type Evidence struct {
	Entries []EvidenceEntry `json:"entries" nullable:"false" doc:"In the order of the log."`
	// Next is the number to go on from; zero: that was all. No entry about a call that has
	// others before it has the number zero.
	Next uint64 `json:"next,omitempty" doc:"Give it as from for the entries that follow."`
}

// EvidenceEntry is one entry. Leaf and Opening are the bytes that were stored.
type EvidenceEntry struct {
	N       uint64          `json:"n" doc:"Its number."`
	Leaf    json.RawMessage `json:"leaf" doc:"What was signed."`
	Opening json.RawMessage `json:"opening" doc:"What the leaf is about in clear; null where it was erased."`
}
