package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/rig/stage"
)

const (
	here         = "http://social.example"
	activityJSON = "application/activity+json"
)

// sender is the other server, where bob reports.
type sender struct {
	t      *testing.T
	bob    string // the actor's URL
	key    ed25519.PrivateKey
	inbox  string // the address of the inbox's server
	client *http.Transport
}

func newSender(t *testing.T) *sender {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{t: t, key: key}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", activityJSON)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": s.bob, "type": "Person", "publicKey": map[string]string{
				"id": s.bob + "#main-key", "owner": s.bob,
				"publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
			},
		})
	}))
	t.Cleanup(server.Close)
	s.bob = server.URL + "/users/bob"
	s.client = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.inbox)
	}}
	return s
}

// activity is the n-th: the offer of a report, or that it is accepted.
func (s *sender) activity(n int) []byte {
	return fmt.Appendf(nil, `{"@context":"https://www.w3.org/ns/activitystreams","type":%q,"id":"%s/activities/%d","actor":%q,"to":["%s/actors/alice"],"object":"%s/reports/%d"}`,
		[...]string{"Offer", "Accept"}[n%2], s.bob, n, s.bob, here, s.bob, n/2)
}

// post makes one delivery, to either of the two inboxes and signed in either of the two
// forms. It returns the status and the message of the answer.
func (s *sender) post(ctx context.Context, body []byte, key ed25519.PrivateKey) (int, string) {
	path := [...]string{"/actors/alice/inbox", "/inbox"}[rand.IntN(2)]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, here+path, bytes.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}
	r.Header.Set("Content-Type", activityJSON)
	form := [...]string{httpsig.FormCavage, httpsig.FormRFC9421}[rand.IntN(2)]
	if err := httpsig.Sign(r, body, httpsig.SignOptions{KeyID: s.bob + "#main-key", Key: key, Form: form}); err != nil {
		s.t.Error(err)
		return 0, ""
	}
	resp, err := s.client.RoundTrip(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	var answer struct{ Message string }
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Message
}

// start runs the example on a directory until end is called.
func (s *sender) start(dir string, t *tracker) (end func()) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.inbox = l.Addr().String()
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, dir, here, httpsig.KeysOptions{AllowPrivate: true}, t) }()
	return func() {
		s.client.CloseIdleConnections() // or the server waits for those on which nothing was sent
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	}
}

// TestActivityPubInbox has another server deliver every activity four times, in random order
// and signed in either form, by eight senders of which some hang up. Meanwhile the inbox is
// restarted, and the tracker's database loses every fifth answer. One delivery is forged, and
// one has a used id and another content.
func TestActivityPubInbox(t *testing.T) {
	const reports = 20
	var changes stage.Counts
	var lost atomic.Int64
	cases := &tracker{changed: func(change, report string) error {
		changes.Add(change+" "+report, "")
		if changes.Sum()%5 == 0 {
			lost.Add(1)
			return errors.New("the connection broke after the commit")
		}
		return nil
	}}
	dir, s := t.TempDir(), newSender(t)
	calls := stage.Shuffled(2*reports, 4)
	for _, part := range [][]int{calls[:len(calls)/2], calls[len(calls)/2:]} {
		end := s.start(dir, cases)
		load := stage.Load{
			Calls: part, Senders: 8, HangUp: 2 * time.Millisecond, Pause: 10 * time.Millisecond,
			Try: func(ctx context.Context, n int) (bool, error) {
				status, _ := s.post(ctx, s.activity(n), s.key)
				return status == http.StatusAccepted, nil
			},
		}
		if err := load.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		end()
	}
	defer s.start(dir, cases)()
	_, forger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	// 503: within a minute of fetching the key, the server can't know that it wasn't replaced.
	if status, _ := s.post(t.Context(), s.activity(1_000_000), forger); status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
		t.Errorf("a forged delivery got %d", status)
	}
	changed := bytes.Replace(s.activity(0), []byte("/reports/0"), []byte("/reports/1"), 1)
	status, message := 0, ""
	err = stage.Until(t.Context(), func() bool {
		status, message = s.post(t.Context(), changed, s.key)
		return status != http.StatusServiceUnavailable
	})
	if err != nil || status != http.StatusAccepted || !strings.HasPrefix(message, "not processed") {
		t.Errorf("a changed activity got %d %q, %v", status, message, err)
	}
	if err := stage.Until(t.Context(), func() bool { return changes.Len() == 2*reports }); err != nil {
		t.Fatal(err)
	}
	if again := changes.Repeated(); len(again) > 0 || lost.Load() != 2*reports/5 {
		t.Errorf("made more than once: %q; %d answers of the database were lost", again, lost.Load())
	}
}
