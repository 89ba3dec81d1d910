package service_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// instance is another server of the fediverse, with the actor bob.
type instance struct {
	*httptest.Server
	t       *testing.T
	key     ed25519.PrivateKey
	fetched atomic.Int64 // documents of bob
	signed  atomic.Int64 // requests for them that were signed
}

func newInstance(t *testing.T) *instance {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{t: t, key: key}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.fetched.Add(1)
		if r.Header.Get("Signature") != "" {
			in.signed.Add(1)
		}
		w.Header().Set("Content-Type", "application/activity+json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": in.bob(), "type": "Person",
			"publicKey": map[string]string{
				"id": in.bob() + "#main-key", "owner": in.bob(),
				"publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
			},
		})
	}))
	t.Cleanup(in.Close)
	return in
}

func (in *instance) bob() string { return in.URL + "/users/bob" }

// note is an activity of bob.
func (in *instance) note(id, text string) string {
	return fmt.Sprintf(`{"@context":"https://www.w3.org/ns/activitystreams","type":"Like","id":"%s/a/%s","actor":"%s","object":%q}`, in.URL, id, in.bob(), text)
}

// receipt is the answer of an inbox.
type receipt struct {
	Status     int
	Error      string
	Message    string
	ActivityID string `json:"activity_id"`
}

// deliver posts an activity to a service, which its senders know as social.example. The
// form of the signature is empty for none.
func (in *instance) deliver(s *running, path, form, body string) receipt {
	in.t.Helper()
	r, err := http.NewRequestWithContext(in.t.Context(), http.MethodPost, "https://social.example"+path, strings.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/activity+json")
	if form != "" {
		if err := httpsig.Sign(r, []byte(body), httpsig.SignOptions{KeyID: in.bob() + "#main-key", Key: in.key, Form: form}); err != nil {
			in.t.Fatal(err)
		}
	}
	r.Host, r.URL.Scheme, r.URL.Host = r.URL.Host, "http", s.DataAddr().String()
	resp, err := stage.Direct.Transport.RoundTrip(r)
	if err != nil {
		in.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var got receipt
	if err != nil || json.Unmarshal(text, &got) != nil || got.Status != resp.StatusCode {
		in.t.Fatalf("%d, %s, %v", resp.StatusCode, text, err)
	}
	return got
}

// want delivers an activity to alice.
func (in *instance) want(s *running, status int, message, form, body string) {
	in.t.Helper()
	if got := in.deliver(s, "/actors/alice/inbox", form, body); got.Status != status || !strings.Contains(got.Message, message) {
		in.t.Errorf("%+v, want %d and %q", got, status, message)
	}
}

// line is the line of the log that has all of these texts.
func (s *running) line(texts ...string) string {
	for line := range strings.Lines(s.log.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return line
		}
	}
	return ""
}

// TestActivityPub takes activities without any Go code, and posts each to an upstream.
func TestActivityPub(t *testing.T) {
	t.Parallel()
	clause.Proves(t, "VUL-02-001", "VUL-02-003", "VUL-03-001", "VUL-03-003")
	key := []byte(strings.Repeat("k", 32))
	up, there, dir := newReceiver(t, key), newInstance(t), t.TempDir()
	keys, err := evidence.GenerateKeys("social.example/log")
	if err != nil {
		t.Fatal(err)
	}
	_, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"up": []byte("whsec_" + base64.StdEncoding.EncodeToString(key)), "evidence.key": keys.Text(),
		"own.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`
store: {url: "pebble:%[1]s/data"}
limits: {shutdown_grace: 50ms}
auth: {default_tenant: acme, trusted_header: {from: [127.0.0.1/32], tenant: X-Tenant, principal: X-Principal}}
routes: [{match: /actors/, upstream: "http://127.0.0.1:1", mode: "off"}]
activitypub:
  - actors_url: https://social.example/actors/{actor}
    actors: [alice, carol]
    shared_inbox: /inbox
    upstream: %[2]q
    upstream_secret_files: ["%[1]s/up"]
    budget: 1m
    signatures: {allow_private: true, key_id: "https://social.example/actors/alice#main-key", key_file: "%[1]s/own.pem"}
    instances:
      - {host: bad.example, refuse: true}
      - {host: proto.example, unsigned: allow}
evidence: {key_file: "%[1]s/evidence.key"}
`, dir, up.URL)
	file := write(t, text)
	s := start(t, file)

	t.Run("an activity is posted once, whichever way it is signed", func(t *testing.T) {
		body := there.note("1", "x")
		there.want(s, 202, "queued", httpsig.FormCavage, body)
		there.want(s, 202, "already", httpsig.FormRFC9421, body)
		there.want(s, 202, "already", httpsig.FormCavage, body)
		p := <-up.got
		for name, want := range map[string]string{
			"Semel-Activity-Id": strings.ReplaceAll(there.URL+"/a/1", "/", "%2F"), "Semel-Activity-Actor": strings.ReplaceAll(there.bob(), "/", "%2F"),
			"Semel-Activity-Type": "Like", "Semel-Activity-Signed": "true", "Semel-Activity-Inbox": "alice",
		} {
			if got := p.header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if p.body != body || !p.signed || !strings.HasPrefix(p.id, "act_") || p.kind != "application/activity+json" || len(up.got) != 0 {
			t.Errorf("%+v, and %d more", p, len(up.got))
		}
		taken := records(t, s, "activitypub.inbox")
		if len(taken) != 1 || taken[0].ID.Tenant != "acme" || taken[0].Attributes["actor"] != there.bob() || len(taken[0].Outbox) != 1 {
			t.Errorf("%+v", taken)
		}
		if there.fetched.Load() != 1 || there.signed.Load() != 1 {
			t.Errorf("the key was asked for %d times, %d of them signed", there.fetched.Load(), there.signed.Load())
		}
		want := []string{"level=WARN", `note="already`, "time=", "component=activitypub", "activity_id=" + there.URL + "/a/1", "actor_id=" + there.bob(), "correlation_id="}
		if s.line(want...) == "" {
			t.Errorf("no line has %q:\n%s", want, s.log)
		}
	})
	t.Run("it goes to everybody whom it names in the shared inbox", func(t *testing.T) {
		body := strings.Replace(there.note("2", "x"), "{", `{"to":["https://social.example/actors/alice","https://social.example/actors/carol"],`, 1)
		if got := there.deliver(s, "/inbox", httpsig.FormCavage, body); got.Status != 202 {
			t.Errorf("%+v", got)
		}
		for want := map[string]bool{"alice": true, "carol": true}; len(want) > 0; {
			p := <-up.got
			if name := p.header.Get("Semel-Activity-Inbox"); !want[name] || p.body != body {
				t.Fatalf("%+v", p)
			} else {
				delete(want, name)
			}
		}
	})
	t.Run("another activity with the id is a warning, and is never posted", func(t *testing.T) {
		there.want(s, 202, "not processed", httpsig.FormCavage, there.note("1", "y"))
		if s.line("level=WARN", "not processed", "activity_id="+there.URL+"/a/1", "first_digest=") == "" {
			t.Error("no line tells of it")
		}
	})
	t.Run("what isn't right is refused and leaves nothing", func(t *testing.T) {
		before := len(records(t, s, "activitypub.inbox"))
		there.want(s, 401, "no signature", "", there.note("3", "x"))
		there.want(s, 403, "", "", `{"type":"Like","id":"https://bad.example/1","actor":"https://bad.example/b","object":"x"}`)
		there.want(s, 403, "another actor", httpsig.FormCavage, strings.Replace(there.note("3", "x"), "/users/bob", "/users/eve", 1))
		there.want(s, 400, "", httpsig.FormCavage, `{}`)
		if got := there.deliver(s, "/actors/mallory/inbox", httpsig.FormCavage, there.note("3", "x")); got.Status != 404 {
			t.Errorf("%+v", got)
		}
		if after := len(records(t, s, "activitypub.inbox")); after != before || len(up.got) != 0 {
			t.Errorf("%d are taken after %d, %d are posted", after, before, len(up.got))
		}
	})
	t.Run("a prototype is believed unsigned, where the configuration says so", func(t *testing.T) {
		there.want(s, 202, "queued", "", `{"type":"Like","id":"https://proto.example/1","actor":"https://proto.example/p","object":"x"}`)
		if p := <-up.got; p.header.Get("Semel-Activity-Signed") != "false" {
			t.Errorf("%+v", p)
		}
		if s.line("level=WARN", "without a signature", "proto.example") == "" {
			t.Error("no line warns of it")
		}
	})
	t.Run("what the upstream refuses is parked, and what it fails at is posted again", func(t *testing.T) {
		up.answer(http.StatusUnprocessableEntity)
		there.want(s, 202, "queued", httpsig.FormCavage, there.note("4", "x"))
		if p := <-up.got; !strings.Contains(p.body, "/a/4") {
			t.Errorf("%+v", p)
		}
		s.untilParked("/a/4", "status_422")
		up.answer(http.StatusServiceUnavailable)
		there.want(s, 202, "queued", httpsig.FormCavage, there.note("5", "x"))
		first := <-up.got
		up.answer(http.StatusNoContent)
		if second := <-up.got; second.id != first.id || second.body != first.body {
			t.Errorf("%+v, then %+v", first, second)
		}
	})
	t.Run("nobody else can send what is posted, or be who takes it", func(t *testing.T) {
		for _, one := range [][2]string{{"activitypub.inbox", "mallory"}, {"default", activitypub.Principal}} {
			status, _, text := do(t, "POST", s.data("/v1/operations/"+one[0]+"/executions"), `{}`, "Idempotency-Key", "x", "X-Tenant", "acme", "X-Principal", one[1])
			if status < 400 {
				t.Error(one, status, text)
			}
		}
	})
	t.Run("after a reload duplicates are recognised, and another actor exists", func(t *testing.T) {
		for _, change := range []struct{ old, new, refused string }{
			{"actors: [alice, carol]", "actors: [alice, dave]", ""},
			{"    budget: 1m", "    budget: 1m\n    name: other", "changing activitypub[0].name needs a restart"},
		} {
			if err := os.WriteFile(file, []byte(strings.Replace(text, change.old, change.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Reload(); err == nil != (change.refused == "") || err != nil && !strings.Contains(err.Error(), change.refused) {
				t.Error(err)
			}
		}
		there.want(s, 202, "already", httpsig.FormRFC9421, there.note("1", "x"))
		for path, want := range map[string]int{"/actors/dave/inbox": 202, "/actors/carol/inbox": 404} {
			if got := there.deliver(s, path, httpsig.FormCavage, there.note("6", "x")); got.Status != want {
				t.Errorf("%s: %+v", path, got)
			}
		}
		if p := <-up.got; p.header.Get("Semel-Activity-Inbox") != "dave" {
			t.Errorf("%+v", p)
		}
	})
	if len(up.got) != 0 {
		t.Errorf("%+v was posted", <-up.got)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	// One conflict, of the record of the id, and of that of the inbox, whose story has it.
	if n := conflictsIn(t, "pebble:"+filepath.Join(dir, "data")); n != 2 {
		t.Errorf("the evidence log has %d conflicts", n)
	}
}

// untilParked waits until an activity's message is parked for a reason.
func (s *running) untilParked(id, code string) {
	s.t.Helper()
	for {
		for _, rec := range records(s.t, s, "activitypub.inbox") {
			for _, m := range rec.Outbox { // the record of the activity itself has none
				if !bytes.Contains(m.Payload, []byte(id)) || m.State != "parked" {
					continue
				}
				if m.Failure.Code != code {
					s.t.Errorf("%+v", m.Failure)
				}
				return
			}
		}
		if s.t.Context().Err() != nil {
			s.t.Fatal("nothing is parked")
		}
	}
}

// conflictsIn counts the conflicts in the evidence log of a store.
func conflictsIn(t *testing.T, url string) (n int) {
	t.Helper()
	st, err := service.OpenStore(t.Context(), config.Store{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	reader, err := evidence.NewReader(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	_, at := reader.Checkpoint()
	for i := range at.Size {
		en, err := reader.Entry(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := evidence.ParseArtifact(en.Leaf)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.Payload.Decision == evidence.DecisionConflict {
			n++
		}
	}
	return n
}
