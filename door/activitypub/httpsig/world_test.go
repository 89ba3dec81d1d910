package httpsig_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

type object = map[string]any

// RSA keys take long to make, so the tests share them.
var rsaKeys = sync.OnceValue(func() []*rsa.PrivateKey {
	var keys []*rsa.PrivateKey
	for range 2 {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		keys = append(keys, k)
	}
	return keys
})

func rsaKey() *rsa.PrivateKey { return rsaKeys()[0] }

func edKey() ed25519.PrivateKey {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	return key
}

func p256Key(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// written is the publicKeyPem of a key.
func written(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// home is the server of some actors. Its documents may change.
type home struct {
	*httptest.Server
	mu    sync.Mutex
	docs  map[string]http.HandlerFunc
	asked map[string]int
}

func newHome(t testing.TB) *home {
	h := &home{docs: make(map[string]http.HandlerFunc), asked: make(map[string]int)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked[r.URL.Path]++
		doc := h.docs[r.URL.Path]
		h.mu.Unlock()
		if doc == nil {
			http.NotFound(w, r)
			return
		}
		doc(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

// has serves a document.
func (h *home) has(path string, doc object) {
	h.does(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/activity+json")
		_ = json.NewEncoder(w).Encode(doc)
	})
}

func (h *home) does(path string, do http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.docs[path] = do
}

// count is how often a path was asked for.
func (h *home) count(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[path]
}

// actor serves an actor with one key, and returns the key's id.
func (h *home) actor(t testing.TB, name string, key crypto.Signer) string {
	id := h.URL + "/users/" + name
	h.has("/users/"+name, object{
		"@context": []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/v1"},
		"id":       id, "type": "Person", "publicKey": object{"id": id + "#main-key", "owner": id, "publicKeyPem": written(t, key)},
	})
	return id + "#main-key"
}

// clock is one that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// newKeys fetches from loopback.
func newKeys(c *clock) *httpsig.Keys {
	return httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Now: c.now})
}

func newVerifier(t testing.TB, c *clock, keys *httpsig.Keys) *httpsig.Verifier {
	v, err := httpsig.New(httpsig.Options{Keys: keys, Now: c.now})
	must(t, err)
	return v
}

const activity = `{"id":"https://a.example/1","type":"Create"}`

// signed is a delivery as a server gets it.
func signed(t testing.TB, c *clock, form, keyID string, key crypto.Signer) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://inbox.example/users/b%2Fc/inbox?x=1", bytes.NewReader([]byte(activity)))
	must(t, err)
	r.Header.Set("Content-Type", "application/activity+json")
	must(t, httpsig.Sign(r, []byte(activity), httpsig.SignOptions{KeyID: keyID, Key: key, Form: form, Now: c.now}))
	return arrive(r)
}

// arrive makes a client's request one that a server got.
func arrive(r *http.Request) *http.Request {
	got := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
	got.Host, got.Header = r.Host, r.Header.Clone()
	if got.Host == "" {
		got.Host = r.URL.Host
	}
	return got
}

// wantCode checks the code of an error.
func wantCode(t testing.TB, err error, want httpsig.Code) {
	t.Helper()
	if e, ok := errors.AsType[*httpsig.Error](err); !ok || e.Code != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
