package whatsapp

import (
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/door/webhook"
)

// SignatureHeader has the signature of a delivery.
const SignatureHeader = "X-Hub-Signature-256"

// minSecret is the shortest verify token that is accepted, in bytes.
const minSecret = 8

// Sign returns the value of [SignatureHeader] for a body: the HMAC-SHA256 of its bytes as sent.
// Use it to send test deliveries. It is empty for a secret that is too short to be an app's.
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
