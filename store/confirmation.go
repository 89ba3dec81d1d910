package store

// Confirmation is the state of a call's confirmation.
type Confirmation struct {
	// Tokens are the issued tokens that can still be used. Once one was used, the list is empty.
	Tokens []ConfirmationToken
	// Tries counts wrong tokens, and proofs that were checked.
	Tries int
	// Principal got the tokens; nobody else can use them.
	Principal string
	// ConfirmedAt is when a token was used; zero until then.
	ConfirmedAt Instant
}

// ConfirmationToken is an issued token.
type ConfirmationToken struct {
	// Digest covers the token and everything it is bound to.
	Digest Digest `json:"digest"`
	// ExpiresAt is when it expires.
	ExpiresAt Instant `json:"expires_at"`
}
