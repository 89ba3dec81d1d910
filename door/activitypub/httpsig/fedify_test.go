package httpsig_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// fedify is an actor in another process.
type fedify struct {
	Actor, Key, Inbox string

	t    *testing.T
	in   io.WriteCloser
	said *bufio.Scanner
}

// newFedify starts an actor; see actor.mjs.
func newFedify(t *testing.T, args ...string) *fedify {
	dir := filepath.Join("..", "testdata", "fedify")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@fedify", "fedify")); errors.Is(err, os.ErrNotExist) {
		const missing = "Fedify is not there: scripts/install-sdks installs it"
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"actor.mjs"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // ends it
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	f := &fedify{t: t, in: in, said: bufio.NewScanner(out)}
	f.next(f)
	return f
}

// next reads what it says next.
func (f *fedify) next(into any) {
	f.t.Helper()
	if !f.said.Scan() {
		f.t.Fatal("Fedify ended:", f.said.Err())
	}
	must(f.t, json.Unmarshal(f.said.Bytes(), into))
}

// deliver has it deliver an activity.
func (f *fedify) deliver(id, to, inbox string) {
	f.t.Helper()
	must(f.t, json.NewEncoder(f.in).Encode(object{"id": id, "to": to, "inbox": inbox, "content": "hello"}))
}

// TestFedify has a real server of ActivityPub sign and verify. It signs by RFC 9421, and
// when that is answered with an error, by the draft.
func TestFedify(t *testing.T) {
	thorough.Only(t, "Fedify, another server of ActivityPub")
	f := newFedify(t, "proofs")

	type knock struct {
		signer httpsig.Signer
		err    error
		body   []byte
	}
	var v *httpsig.Verifier
	var unknown atomic.Bool // whether signatures by RFC 9421 are answered 401
	knocks := make(chan knock, 8)
	inbox := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		who, err := v.Verify(r, body)
		knocks <- knock{who, err, body}
		if unknown.Load() && who.Form == httpsig.FormRFC9421 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer inbox.Close()
	base, err := url.Parse(inbox.URL)
	must(t, err)
	v, err = httpsig.New(httpsig.Options{Keys: httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true}), Base: base})
	must(t, err)

	got := func(t *testing.T, form string) []byte {
		t.Helper()
		k := <-knocks
		if want := (httpsig.Signer{Actor: f.Actor, KeyID: f.Key, Form: form}); k.err != nil || k.signer != want {
			t.Errorf("got %+v, %v; want %+v", k.signer, k.err, want)
		}
		return k.body
	}
	delivered := func(t *testing.T, id string) {
		t.Helper()
		var said struct{ Delivered, Error string }
		f.next(&said)
		if said.Delivered != id || said.Error != "" {
			t.Errorf("Fedify says %+v", said)
		}
	}
	// In the draft's form Fedify signs the path alone, so an inbox has no query.
	bob, there := inbox.URL+"/users/bob", inbox.URL+"/users/b%2Fob/inbox"
	t.Run("its first signature is right", func(t *testing.T) {
		f.deliver(f.Actor+"/1", bob, there+"?shared=1")
		got(t, httpsig.FormRFC9421)
		delivered(t, f.Actor+"/1")
	})
	t.Run("its second one is right, too", func(t *testing.T) {
		unknown.Store(true)
		f.deliver(f.Actor+"/2", bob, there)
		first, second := got(t, httpsig.FormRFC9421), got(t, httpsig.FormCavage)
		if !bytes.Equal(first, second) {
			t.Errorf("it sent %s\nand then %s", first, second)
		}
		delivered(t, f.Actor+"/2")
	})
	t.Run("it verifies ours", func(t *testing.T) {
		h := newHome(t)
		key := rsaKey()
		id := h.actor(t, "carol", key)
		actor := h.URL + "/users/carol"
		for i, form := range forms {
			body := fmt.Appendf(nil, `{"@context":"https://www.w3.org/ns/activitystreams","id":"%s/%d","type":"Create","actor":"%s","to":"%s","object":{"id":"%[1]s/%d/note","type":"Note","content":"hello"}}`, actor, i, actor, f.Actor)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.Inbox, bytes.NewReader(body))
			must(t, err)
			r.Header.Set("Content-Type", "application/activity+json")
			must(t, httpsig.Sign(r, body, httpsig.SignOptions{KeyID: id, Key: key, Form: form}))
			resp, err := http.DefaultClient.Do(r)
			must(t, err)
			answer, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%s: it answers %d: %s", form, resp.StatusCode, answer)
			}
			var said struct{ Received, From string }
			f.next(&said)
			if said.Received != fmt.Sprintf("%s/%d", actor, i) || said.From != actor {
				t.Errorf("Fedify says %+v", said)
			}
		}
	})
}
