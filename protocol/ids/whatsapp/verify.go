package whatsapp

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// SignatureHeader has the signature of a delivery.
const SignatureHeader = "X-Hub-Signature-256"

const signaturePrefix = "sha256="

// minSecret is the shortest secret that is accepted, in bytes.
const minSecret = 8

// maxChallenge bounds what is given back in the handshake, in bytes.
const maxChallenge = 256

// Sign is the value of [SignatureHeader] for a body: the HMAC-SHA256 of its bytes as
// they are sent. Senders of test deliveries use it.
func Sign(appSecret string, body []byte) string {
	return signaturePrefix + hex.EncodeToString(mac(appSecret, body))
}

func mac(secret string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(body)
	return h.Sum(nil)
}

// signature reads the header: one signature, or none.
func signature(h http.Header) (sum []byte, given bool) {
	values := h.Values(SignatureHeader)
	if len(values) == 0 {
		return nil, false
	}
	text, ok := strings.CutPrefix(values[0], signaturePrefix)
	sum, err := hex.DecodeString(text)
	if !ok || err != nil || len(values) > 1 || len(sum) != sha256.Size {
		return nil, true
	}
	return sum, true
}

// signed reports whether one of the secrets signed the body. All are tried, so that
// the time it takes does not tell which did.
func (in *Ingress) signed(sum, body []byte) bool {
	found := 0
	for _, secret := range in.opts.AppSecrets {
		found |= subtle.ConstantTimeCompare(sum, mac(secret, body))
	}
	return found == 1
}

// handshake answers the question whether this is the webhook that the app's owner
// meant.
func (in *Ingress) handshake(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	// Digests have one length, so that of the token does not show.
	want, got := sha256.Sum256([]byte(in.opts.VerifyToken)), sha256.Sum256([]byte(q.Get("hub.verify_token")))
	challenge := q.Get("hub.challenge")
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 || q.Get("hub.mode") != "subscribe" || len(challenge) > maxChallenge {
		refuse(w, http.StatusForbidden, "the handshake is refused")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(challenge)) // who is gone asks again
}
