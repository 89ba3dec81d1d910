package dispatch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
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

// sign sets the three headers; without secrets the first two.
func (s signer) sign(h http.Header, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", stamp)
	var signatures []string
	for _, key := range s {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) > 0 {
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}
