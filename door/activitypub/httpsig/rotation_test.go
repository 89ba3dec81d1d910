package httpsig_test

import (
	"crypto"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answerOf is a document as the answer of a key's server.
func answerOf(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/activity+json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestRotation replaces keys. A new one is believed as soon as the old one was kept for a
// minute, and whoever sends wrong signatures causes one fetch per minute.
func TestRotation(t *testing.T) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			c, h := newClock(), newHome(t)
			v := newVerifier(t, c, newKeys(c))
			older, newer, forged := edKey(), p256Key(t), edKey()
			id := h.actor(t, "alice", older)
			_, err := v.Verify(signed(t, c, form, id, older), []byte(activity))
			must(t, err)

			forge := func(n int) {
				t.Helper()
				var all sync.WaitGroup
				for range n {
					all.Go(func() {
						_, err := v.Verify(signed(t, c, form, id, forged), []byte(activity))
						wantCode(t, err, httpsig.SignatureWrong)
					})
				}
				all.Wait()
			}
			fetched := func(want int) {
				t.Helper()
				if n := h.count("/users/alice"); n != want {
					t.Fatalf("%d fetches, want %d", n, want)
				}
			}
			forge(10)
			fetched(1) // it was fetched just now
			c.pass(time.Minute)
			forge(10)
			fetched(2)

			h.actor(t, "alice", newer)
			_, err = v.Verify(signed(t, c, form, id, newer), []byte(activity))
			if err == nil {
				t.Error("the new key was fetched at once")
			}
			c.pass(time.Minute - time.Second)
			// Nobody knows yet whether it is wrong: most senders give up after a 401.
			_, err = v.Verify(signed(t, c, form, id, newer), []byte(activity))
			wantCode(t, err, httpsig.KeyUnavailable)
			fetched(2)
			c.pass(time.Second)
			who, err := v.Verify(signed(t, c, form, id, newer), []byte(activity))
			if err != nil || who.KeyID != id {
				t.Fatal(who, err)
			}
			fetched(3)
			if _, err = v.Verify(signed(t, c, form, id, older), []byte(activity)); err == nil {
				t.Error("the old key is still good")
			}
			fetched(3)
		})
	}
	t.Run("while the new key can't be had, it is unknown who signed", func(t *testing.T) {
		c, h := newClock(), newHome(t)
		v := newVerifier(t, c, newKeys(c))
		older, newer := edKey(), edKey()
		id := h.actor(t, "alice", older)
		verify := func(key crypto.Signer, want httpsig.Code) {
			t.Helper()
			_, err := v.Verify(signed(t, c, httpsig.FormRFC9421, id, key), []byte(activity))
			if want == "" {
				must(t, err)
			} else {
				wantCode(t, err, want)
			}
		}
		verify(older, "")
		c.pass(2 * time.Minute)
		h.does("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		for range 3 {
			verify(newer, httpsig.KeyUnavailable)
		}
		verify(older, "")
		if n := h.count("/users/alice"); n != 2 {
			t.Errorf("%d fetches", n)
		}
		h.actor(t, "alice", newer)
		c.pass(time.Minute)
		verify(newer, "")
		verify(older, httpsig.SignatureWrong)
	})
	t.Run("a key that is gone is good for nothing", func(t *testing.T) {
		c, h := newClock(), newHome(t)
		v := newVerifier(t, c, newKeys(c))
		older := edKey()
		id := h.actor(t, "alice", older)
		_, err := v.Verify(signed(t, c, httpsig.FormCavage, id, older), []byte(activity))
		must(t, err)
		c.pass(2 * time.Minute)
		h.does("/users/alice", http.NotFound)
		for _, key := range []crypto.Signer{edKey(), older} {
			_, err = v.Verify(signed(t, c, httpsig.FormCavage, id, key), []byte(activity))
			wantCode(t, err, httpsig.KeyGone)
		}
	})
}
