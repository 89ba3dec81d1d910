package store

// Confirmation is the state of a call's confirmation.
type Confirmation struct {
	// Tokens are the issued tokens that may still be used. Once one was used there are none.
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
	// Digest is that of the token and all it is bound to.
	Digest Digest `json:"digest"`
	// ExpiresAt is until when it is good.
	ExpiresAt Instant `json:"expires_at"`
}
