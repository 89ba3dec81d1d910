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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/protocol/activitypub/httpsig"
)

const activityJSON = "application/activity+json"

// sender is the other server, whose actor bob reports. It repeats each delivery until it
// is answered with 202.
type sender struct {
	url     string // of the server
	key     ed25519.PrivateKey
	server  *http.Server
	inbox   atomic.Pointer[string] // the address of the inbox's server
	client  *http.Transport
	hungUp  atomic.Int64
	serving sync.WaitGroup
}

func newSender() (*sender, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sender{url: "http://" + l.Addr().String(), key: key}
	s.client = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *s.inbox.Load())
	}}
	actor, err := json.Marshal(map[string]any{
		"@context": []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/v1"},
		"id":       s.bob(), "type": "Person", "inbox": s.bob() + "/inbox",
		"publicKey": map[string]string{
			"id": s.bob() + "#main-key", "owner": s.bob(),
			"publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		},
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/bob", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", activityJSON)
		_, _ = w.Write(actor)
	})
	s.server = &http.Server{Handler: mux}
	s.serving.Go(func() { _ = s.server.Serve(l) })
	return s, nil
}

func (s *sender) close() error {
	err := s.server.Close()
	s.serving.Wait()
	s.client.CloseIdleConnections()
	return err
}

func (s *sender) bob() string { return s.url + "/users/bob" }

// activity is the n-th: the offer of a report, or that it is accepted.
func (s *sender) activity(n int) []byte {
	kind := [...]string{"Offer", "Accept"}[n%2]
	return fmt.Appendf(nil, `{"@context":"https://www.w3.org/ns/activitystreams","type":%q,"id":"%s/activities/%d","actor":%q,"to":["%s/actors/alice"],"object":"%s/reports/%d"}`,
		kind, s.url, n, s.bob(), here, s.url, n/2)
}

// deliver delivers activities, by eight senders at once.
func (s *sender) deliver(ctx context.Context, activities []int) {
	work := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for n := range work {
				s.insist(ctx, s.activity(n))
			}
		})
	}
	for _, n := range activities {
		work <- n
	}
	close(work)
	senders.Wait()
}

// insist delivers an activity until it is answered with 202, to either of the two inboxes.
// One sender in ten hangs up at first.
func (s *sender) insist(ctx context.Context, body []byte) {
	hangUp := rand.IntN(10) == 0
	for ctx.Err() == nil {
		try, cancel := context.WithCancel(ctx)
		if hangUp {
			time.AfterFunc(rand.N(2*time.Millisecond), cancel)
			s.hungUp.Add(1)
		}
		path := [...]string{"/actors/alice/inbox", "/inbox"}[rand.IntN(2)]
		status, _, err := s.post(try, path, body, s.key)
		cancel()
		if err == nil && status == http.StatusAccepted {
			return
		}
		hangUp = false
		select { // few servers wait longer the first time
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// post makes one delivery, signed in one of the two forms. It returns the status and the
// message of the answer.
func (s *sender) post(ctx context.Context, path string, body []byte, key ed25519.PrivateKey) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, here+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", activityJSON)
	form := [...]string{httpsig.FormCavage, httpsig.FormRFC9421}[rand.IntN(2)]
	if err := httpsig.Sign(r, body, httpsig.SignOptions{KeyID: s.bob() + "#main-key", Key: key, Form: form}); err != nil {
		return 0, "", err
	}
	resp, err := s.client.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Message string `json:"message"`
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Message, err
}

// forge delivers an activity in bob's name, signed by a key that isn't his. It returns how
// many were refused.
func (s *sender) forge(ctx context.Context) (refused int, err error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return 0, err
	}
	status, _, err := s.post(ctx, "/inbox", s.activity(1_000_000), key)
	// 503: within a minute of fetching the key, the server can't know that it wasn't replaced.
	if status == http.StatusUnauthorized || status == http.StatusServiceUnavailable {
		refused++
	}
	return refused, err
}

// change delivers another activity under the id of the first. It returns how many were not
// handled.
func (s *sender) change(ctx context.Context) (conflicts int, err error) {
	body := bytes.Replace(s.activity(0), []byte("/reports/0"), []byte("/reports/1"), 1)
	for ctx.Err() == nil {
		status, message, err := s.post(ctx, "/actors/alice/inbox", body, s.key)
		if err != nil || status == http.StatusAccepted {
			if strings.HasPrefix(message, "not processed") {
				conflicts++
			}
			return conflicts, err
		}
	}
	return 0, ctx.Err()
}
