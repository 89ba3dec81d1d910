package wire

import "encoding/json"

// MaxEvidence is how many entries of the evidence log a page has at most.
const MaxEvidence = 1000

// Evidence is what the evidence log says about a call.
type Evidence struct {
	Entries []EvidenceEntry `json:"entries" nullable:"false" doc:"In the order of the log."`
	// Next is the number to continue from; zero: that was all. An entry with number zero is
	// never the next one about a call.
	Next uint64 `json:"next,omitempty" doc:"Give it as from, or with newest as before, for the entries that follow."`
	// Size and Root belong to the checkpoint that the proofs lead to.
	Size uint64 `json:"size,omitempty" doc:"With newest: the size of the checkpoint that the proofs lead to."`
	Root string `json:"root,omitempty" doc:"Its root, in base64."`
}

// EvidenceEntry is one entry. Leaf and Opening are the bytes that were stored.
type EvidenceEntry struct {
	N       uint64          `json:"n" doc:"Its number."`
	Leaf    json.RawMessage `json:"leaf" doc:"What was signed."`
	Opening json.RawMessage `json:"opening" doc:"What the leaf is about in clear; null where it was erased."`
	// Proof is the path from the leaf to the root of the checkpoint.
	Proof []string `json:"proof,omitempty" nullable:"false" doc:"With newest: the hashes that lead from the leaf to the root, as in RFC 6962, in base64."`
}

// Checkpoint is the newest signed state of the evidence log. An empty log has none.
type Checkpoint struct {
	Origin string   `json:"origin" doc:"The name of the log."`
	Size   uint64   `json:"size" doc:"How many entries it has."`
	Root   string   `json:"root" doc:"The root of the tree over them, in base64."`
	Signed string   `json:"signed" doc:"The signed note."`
	Fault  string   `json:"fault,omitempty" doc:"Why this node signs nothing, or what a witness has against the log."`
	Keys   []string `json:"keys" nullable:"false" doc:"Its public keys. They prove nothing if they come from the service itself."`
}
