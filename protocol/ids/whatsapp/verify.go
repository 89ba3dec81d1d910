package whatsapp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/protocol/webhook"
)

// SignatureHeader has the signature of a delivery.
const SignatureHeader = "X-Hub-Signature-256"

// minSecret is the shortest verify token that is accepted, in bytes.
const minSecret = 8

// maxChallenge bounds the challenge in the handshake, in bytes.
const maxChallenge = 256

// Sign is the value of [SignatureHeader] for a body: the HMAC-SHA256 of its bytes as
// they are sent. Senders of test deliveries use it. It is empty for a secret that is too
// short to be an app's.
func Sign(appSecret string, body []byte) string {
	d := &webhook.Delivery{Header: http.Header{}, Body: body}
	if source().Sign(d, appSecret, "", time.Time{}) != nil {
		return ""
	}
	return d.Header.Get(SignatureHeader)
}

// source is how WhatsApp signs.
var source = sync.OnceValue(func() *webhook.Source {
	s, err := webhook.Builtin("whatsapp")
	if err != nil {
		panic(err) // it is built in
	}
	return s
})

// handshake confirms to WhatsApp that this is the app's webhook.
func (in *Ingress) handshake(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	// Digests have one length, so the token's length doesn't show.
	want, got := sha256.Sum256([]byte(in.opts.VerifyToken)), sha256.Sum256([]byte(q.Get("hub.verify_token")))
	challenge := q.Get("hub.challenge")
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 || q.Get("hub.mode") != "subscribe" || len(challenge) > maxChallenge {
		refuse(w, http.StatusForbidden, "the handshake is refused")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(challenge)) // WhatsApp asks again if it was lost
}
