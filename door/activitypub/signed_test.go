package activitypub_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/rig/clause"
)

// server is another server of the fediverse, with one actor.
type server struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newServer(t *testing.T) *server {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{key: key}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", activityJSON)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": s.actor(), "type": "Person", "publicKey": map[string]any{
			"id": s.actor() + "#main-key", "owner": s.actor(),
			"publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		}})
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) actor() string { return s.URL + "/users/bob" }

// deliver signs an activity and delivers it. Change, unless it is nil, does something to it
// on the way.
func (s *server) deliver(t *testing.T, w *world, body, form string, change func(r *http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := s.request(t, body, form)
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	w.inbox.ServeHTTP(rec, r)
	return rec
}

// request is a signed delivery to alice.
func (s *server) request(t *testing.T, body, form string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("POST", "https://here.example/actors/alice/inbox/", strings.NewReader(body))
	r.Header.Set("Content-Type", activityJSON)
	if err := httpsig.Sign(r, []byte(body), httpsig.SignOptions{KeyID: s.actor() + "#main-key", Key: s.key, Form: form}); err != nil {
		t.Fatal(err)
	}
	return r
}

// verifierOf believes the actors of servers on this machine.
func verifierOf(t *testing.T, policies activitypub.Policies) *httpsig.Verifier {
	t.Helper()
	verifier, err := httpsig.New(httpsig.Options{
		Keys: httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Allow: policies.Accepts}),
		Base: &url.URL{Scheme: "https", Host: "here.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

// TestSigned delivers one activity signed in each form, as senders do that try the other
// one when they see an error, and what isn't theirs.
func TestSigned(t *testing.T) {
	clause.Proves(t, "VUL-02-001", "VUL-03-001")
	policies := activitypub.Policies{{Host: "blocked.example", Refuse: true}}
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies = verifierOf(t, policies), policies })
	s := newServer(t)
	activity := func(n string) string {
		return fmt.Sprintf(`{"id":"%s/a/%s","type":"Create","actor":%q,"object":"x"}`, s.URL, n, s.actor())
	}
	want := func(rec *httptest.ResponseRecorder, status int, part string) {
		t.Helper()
		if rec.Code != status || !strings.Contains(rec.Body.String(), part) {
			t.Errorf("%d %s, want %d with %q", rec.Code, rec.Body, status, part)
		}
	}
	want(s.deliver(t, w, activity("1"), httpsig.FormRFC9421, nil), 202, "queued")
	want(s.deliver(t, w, activity("1"), httpsig.FormCavage, nil), 202, "already")
	for _, form := range []string{httpsig.FormRFC9421, httpsig.FormCavage} {
		want(s.deliver(t, w, activity("2"), form, func(r *http.Request) {
			r.Body = http.NoBody
		}), 400, "JSON")
		want(s.deliver(t, w, activity("2"), form, func(r *http.Request) {
			r.Body = httptest.NewRequest("POST", "/", strings.NewReader(activity("3"))).Body
		}), 401, "")
		want(s.deliver(t, w, activity("2"), form, func(r *http.Request) {
			r.URL.Path, r.RequestURI = "/actors/carol/inbox/", "/actors/carol/inbox/"
		}), 503, "KeyUnavailable") // the key may have been replaced since it was fetched
		want(s.deliver(t, w, activity("2"), form, func(r *http.Request) { r.Header.Del("Signature") }), 401, "")
	}
	stranger := newServer(t)
	want(stranger.deliver(t, w, activity("2"), "", nil), 403, "another server")
	if w.work(); len(w.handled) != 1 || !w.handled[0].Signed || w.handled[0].Actor != s.actor() {
		t.Errorf("%d activities were handled", len(w.handled))
	}
	s.Close() // its key is kept
	want(s.deliver(t, w, activity("4"), "", nil), 202, "queued")
}

// TestADuplicateAtTheSocket is answered within 100 ms, from the first byte of its request to the
// last of the answer, with its signature verified. A try that takes longer says nothing on a busy
// machine; a duplicate that is slow is so in every try.
func TestADuplicateAtTheSocket(t *testing.T) {
	clause.Proves(t, "VUL-03-005")
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies, o.Budget = verifierOf(t, nil), nil, 0 })
	s, inbox := newServer(t), httptest.NewServer(w.inbox)
	t.Cleanup(inbox.Close)
	const tries, most = 100, 100 * time.Millisecond
	within := func(body, form, answer string) bool {
		r := s.request(t, body, form)
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", inbox.Listener.Addr().String() // r.Host stays as it was signed
		r.Body = io.NopCloser(strings.NewReader(body))
		start := time.Now()
		resp, err := inbox.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		took := time.Since(start)
		if err != nil || resp.StatusCode != 202 && resp.StatusCode != 503 {
			t.Fatalf("%d %s, %v", resp.StatusCode, text, err)
		}
		return resp.StatusCode == 202 && strings.Contains(string(text), answer) && took <= most
	}
	for n := range 20 {
		body := fmt.Sprintf(`{"id":"%s/a/%d","type":"Create","actor":%q,"object":"x"}`, s.URL, n, s.actor())
		for _, form := range []string{httpsig.FormRFC9421, httpsig.FormCavage} {
			within(body, form, "") // so that it is in the store, and its key is known
			left := tries
			for ; left > 0 && !within(body, form, "already queued"); left-- {
			}
			if left == 0 {
				t.Fatalf("none of %d deliveries of a duplicate was answered within %v", tries, most)
			}
		}
	}
}
