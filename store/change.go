package store

// Change says what a write does to a record, in the evidence log's words.
type Change string

// The changes.
const (
	ChangeClaimed      Change = "claimed"                // an attempt began
	ChangeEnded        Change = "ended"                  // it became terminal; the disposition says how
	ChangeSettled      Change = "settled"                // it was held, and somebody other than its holder ended it: see Record.Settled
	ChangeReleased     Change = "released"               // its claim was given back; nothing was executed under it
	ChangeHeld         Change = "held"                   // nobody may run it until it is settled
	ChangeEffect       Change = "effect"                 // the ledger changed
	ChangeMessage      Change = "message"                // a message of the outbox was delivered, parked, replayed or discarded
	ChangeCompensation Change = "compensation"           // a compensation was started or ended
	ChangeChallenged   Change = "confirmation_requested" // a confirmation token was issued
	ChangeUnconfirmed  Change = "confirmation_refused"   // a wrong or late token was presented
	ChangeConfirmed    Change = "confirmed"              // an operator confirmed it: see Record.Settled
	ChangeMoved        Change = "moved"                  // a refusal was put into a record of its own, for the caller who got it
	ChangePostponed    Change = "postponed"              // only the lease or the time of the next look changed
	ChangeForgotten    Change = "forgotten"              // its window was over, and it lost its answer
	ChangePurged       Change = "purged"                 // an operator is about to delete it
	ChangeRestored     Change = "restored"               // the whole store was restored from a backup
)
