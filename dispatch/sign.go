package dispatch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// signer signs messages by Standard Webhooks 1.0, with each of its secrets.
type signer [][]byte

const secretPrefix = "whsec_"

func newSigner(secrets []string) (signer, error) {
	var s signer
	for _, text := range secrets {
		encoded, ok := strings.CutPrefix(text, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, errors.New("dispatch: a secret of a webhook is " + secretPrefix + " and 24 to 64 bytes in base64")
		}
		s = append(s, key)
	}
	return s, nil
}

// sign sets the headers of Standard Webhooks, the ones that name the sending call's tenant and
// operation, and the signature over all of them. Without secrets there are no signatures.
func (s signer) sign(h http.Header, d *Delivery, at time.Time) {
	id, stamp := d.Message.ID, strconv.FormatInt(at.Unix(), 10)
	tenant, operation := word(d.Call.Tenant), word(d.Call.Operation)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", stamp)
	h.Set("Semel-Tenant", tenant)
	h.Set("Semel-Operation", operation)
	// The caller chooses the body. So the signed text of Standard Webhooks, which begins
	// with the id of the message, must never equal the text that is signed here.
	standard, own := id+"."+stamp+".", strings.Join([]string{"semel-1", id, stamp, tenant, operation, ""}, ".")
	var signatures, owns []string
	for _, key := range s {
		signatures = append(signatures, signed(key, standard, d.Message.Payload))
		owns = append(owns, signed(key, own, d.Message.Payload))
	}
	if len(s) > 0 {
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
		h.Set("Semel-Signature", strings.Join(owns, " "))
	}
}

func signed(key []byte, head string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(head))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// word encodes a name for a header, without full stops, so that different lists of names
// never look the same: all bytes but letters, digits, hyphens and underscores are
// percent-encoded.
func word(s string) string {
	return strings.NewReplacer(".", "%2E", "~", "%7E", "+", "%20").Replace(url.QueryEscape(s))
}
