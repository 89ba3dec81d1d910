package store

// Settled says who decided something about a call instead of its holder: how a held attempt
// ended, whether an effect happened, that the call is confirmed, or that the record is to be
// deleted.
type Settled struct {
	// By is one of the By constants.
	By string `json:"by"`
	// Who is the operator's name as the service knows it, or whom a reconciler asked; empty if
	// unknown.
	Who string `json:"who,omitempty"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
	// At is when this was written.
	At Instant `json:"at"`
}

// Who settles.
const (
	ByOperator   = "operator"
	ByReconciler = "reconciler"
)
