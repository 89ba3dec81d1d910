package httpsig_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// An inbox asks who signed an activity, before it looks at it. The signer's server
// publishes the key.
func Example() {
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	signers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := "http://" + r.Host + "/alice"
		der, _ := x509.MarshalPKIXPublicKey(public)
		w.Header().Set("Content-Type", "application/activity+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": id, "type": "Person", "publicKey": map[string]any{
			"id": id + "#main-key", "owner": id, "publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		}})
	}))
	defer signers.Close()

	keys := httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true}) // only because this example is on loopback
	verifier, err := httpsig.New(httpsig.Options{Keys: keys})
	if err != nil {
		log.Fatal(err)
	}
	inbox := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		who, err := verifier.Verify(r, body)
		if err != nil {
			fmt.Println("refused:", err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Println("signed by", strings.TrimPrefix(who.Actor, signers.URL), "by", who.Form)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer inbox.Close()

	body := []byte(`{"type":"Create"}`)
	for _, sent := range []string{string(body), `{"type":"Delete"}`} {
		r, _ := http.NewRequest(http.MethodPost, inbox.URL, bytes.NewReader([]byte(sent)))
		if err := httpsig.Sign(r, body, httpsig.SignOptions{KeyID: signers.URL + "/alice#main-key", Key: private}); err != nil {
			log.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	// Output:
	// signed by /alice by rfc9421
	// refused: digest_wrong: the body does not have the digest sha-256 that was signed
}
