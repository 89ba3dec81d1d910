package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

type token struct {
	sum [sha256.Size]byte
	id  Identity
}

// tokenPrefix makes leaked tokens easy to find.
const tokenPrefix = "semel_"

// NewToken makes a token of 256 random bits, and the digest for the configuration.
func NewToken() (token, sha256 string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, HashToken(token)
}

// HashToken returns the SHA-256 of a token, as 64 hexadecimal digits.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func newToken(t *Token) token {
	entry := token{id: member(t.Tenant, t.Principal, MethodToken, t.Roles, t.Rights)}
	_, _ = hex.Decode(entry.sum[:], []byte(t.SHA256)) // it was checked
	return entry
}

// byBearer identifies the caller by the Authorization field (RFC 6750 section 2.1). It
// ignores tokens in bodies and queries, where they end up in logs.
func (a *Authenticator) byBearer(r *http.Request) (Identity, error) {
	fields := r.Header["Authorization"]
	if !a.bearer() || len(fields) == 0 {
		return Identity{}, errNone
	}
	if len(fields) > 1 {
		return Identity{}, bad(invalidRequest, "there is more than one Authorization field")
	}
	scheme, sent, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, errNone
	}
	sent = strings.Trim(sent, " ")
	if sent == "" {
		return Identity{}, bad(invalidRequest, "the bearer token is empty")
	}
	if id, ok := a.byToken(sent); ok {
		return id, nil
	}
	if len(a.issuers) == 0 {
		return Identity{}, bad(invalidToken, "the bearer token is unknown")
	}
	return a.byJWT(sent)
}

// byToken compares with every token, so that the time it takes reveals nothing.
func (a *Authenticator) byToken(sent string) (Identity, bool) {
	sum := sha256.Sum256([]byte(sent))
	found := -1
	for i := range a.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]), i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return a.tokens[found].id, true
}
