package httpsig_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// FuzzVerify changes the fields of signed requests as whoever doesn't have the key could.
// The verifier must not panic and must not take anything else for signed: whatever it
// accepts has the method, host, target, date and body that were signed.
func FuzzVerify(f *testing.F) {
	c := newClock()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	const actor = "https://a.example/alice"
	doc, err := json.Marshal(object{"id": actor, "publicKey": object{"id": actor + "#k", "owner": actor, "publicKeyPem": written(f, key)}})
	must(f, err)
	keys := httpsig.NewKeys(httpsig.KeysOptions{Now: c.now, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != actor {
			return nil, errors.New("no such server")
		}
		return answerOf(string(doc)), nil
	})})
	v := newVerifier(f, c, keys)
	for _, form := range forms {
		r := signed(f, c, form, actor+"#k", key)
		digest := r.Header.Get("Digest")
		if form == httpsig.FormRFC9421 {
			digest = r.Header.Get("Content-Digest")
		}
		f.Add(r.Header.Get("Signature"), r.Header.Get("Signature-Input"), digest, r.Header.Get("Date"), r.Method, r.Host, r.RequestURI, activity)
	}
	f.Add(`keyId="a",signature=""`, `a=("date";sf="x" "@query-param";name="y");created=1.5`, "SHA-256=,=", "", "", "", "http://a", "")
	f.Fuzz(func(t *testing.T, signature, input, digest, date, method, host, target, body string) {
		r := signed(t, c, httpsig.FormRFC9421, actor+"#k", key)
		r.Header = http.Header{"Signature": {signature}, "Content-Digest": {digest}, "Digest": {digest}, "Date": {date}, "Content-Type": {"application/activity+json"}}
		if input != "" {
			r.Header.Set("Signature-Input", input)
		}
		r.Method, r.Host, r.RequestURI = method, host, target
		who, err := v.Verify(r, []byte(body))
		if err == nil {
			same := method == http.MethodPost || strings.EqualFold(method, http.MethodPost) && who.Form == httpsig.FormCavage
			uri := strings.TrimPrefix(strings.TrimPrefix(target, "http://inbox.example"), "http://"+host)
			if !same || !strings.EqualFold(strings.TrimSuffix(host, ":80"), "inbox.example") || uri != "/users/b%2Fc/inbox?x=1" || body != activity ||
				strings.TrimSpace(date) != c.now().Format(http.TimeFormat) || who.Actor != actor {
				t.Fatalf("%+v signed %q %q %q at %q: %q", who, method, host, target, date, body)
			}
			return
		}
		if _, ok := errors.AsType[*httpsig.Error](err); !ok {
			t.Fatalf("the error is %T", err)
		}
	})
}
