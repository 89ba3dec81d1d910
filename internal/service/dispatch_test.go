package service_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/service/auth"
)

// posted is a request that the receiver of messages got.
type posted struct {
	id, kind, body string
	signed         bool
	header         http.Header
}

// receiver is a webhook that answers as it is told.
type receiver struct {
	*httptest.Server
	got chan posted

	mu     sync.Mutex
	status int
	words  string // the body of its answers
}

func newReceiver(t *testing.T, key []byte) *receiver {
	r := &receiver{got: make(chan posted, 100), status: http.StatusNoContent}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		// The three headers of Standard Webhooks, computed without package dispatch.
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp"), body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		r.mu.Lock()
		status, words := r.status, r.words
		r.mu.Unlock()
		w.WriteHeader(status)
		_, _ = io.WriteString(w, words)
		r.got <- posted{req.Header.Get("webhook-id"), req.Header.Get("Content-Type"), string(body), req.Header.Get("webhook-signature") == want, req.Header}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.words = status, ""
}

// refuse answers from now on with a status and a body.
func (r *receiver) refuse(status int, words string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.words = status, words
}

// shownMessage is a message as the API shows it.
type shownMessage struct {
	ID, State string
	Tries     int
	Error     struct{ Code, Message string }
}

// TestDispatch sends messages by calls over the API, on a directory, and follows them to
// their receiver.
func TestDispatch(t *testing.T) {
	t.Parallel()
	key := []byte(strings.Repeat("k", 32))
	hook := newReceiver(t, key)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, write(t, fmt.Sprintf(`
auth: {tokens: [{name: root, roles: [admin], sha256: %s}]}
store: {url: "pebble:%s/data"}
dispatch:
  destinations:
    - name: billing
      operations: [default]
      url: %q
      secret_files: [%q]
      max_tries: 3
      min_backoff: 10ms
      max_backoff: 20ms
      allow_private: true
`, auth.HashToken(rootToken), dir, hook.URL, secret)))

	// complete is a call that sends one message. It returns its record and the message.
	complete := func(key, destination string) (record string, m shownMessage) {
		t.Helper()
		_, _, text := asRoot(t, "POST", s.data("/v1/operations/default/executions"), `{}`, "Idempotency-Key", key)
		var begun struct{ Execution string }
		if err := json.Unmarshal([]byte(text), &begun); err != nil || begun.Execution == "" {
			t.Fatal(text, err)
		}
		status, _, text := asRoot(t, "POST", s.data("/v1/executions/"+begun.Execution+"/complete"),
			`{"messages":[{"name":"done","destination":"`+destination+`","payload":{"key":"`+key+`"}}]}`)
		var done struct {
			Record struct {
				ID       string
				Messages []shownMessage
			}
		}
		if err := json.Unmarshal([]byte(text), &done); err != nil || status != 200 || len(done.Record.Messages) != 1 {
			t.Fatal(status, text, err)
		}
		return done.Record.ID, done.Record.Messages[0]
	}
	// until waits until a record's message is in a state. The API doesn't announce
	// messages, so it asks again when the receiver says that it makes sense.
	until := func(record, state string) (m shownMessage) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _, text := asRoot(t, "GET", s.admin("/v1/records/"+record), "")
			var got struct {
				Record struct{ Messages []shownMessage }
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Record.Messages) != 1 {
				t.Fatal(text, err)
			}
			if m = got.Record.Messages[0]; m.State == state {
				return m
			}
			select {
			case <-tick.C:
			case <-t.Context().Done():
				t.Fatalf("the message is %s", m.State)
			}
		}
	}

	t.Run("a message is delivered once, with its name and a signature", func(t *testing.T) {
		record, m := complete("one", "billing")
		if got := <-hook.got; got.id != m.ID || got.kind != "application/json" || got.body != `{"key":"one"}` || !got.signed {
			t.Errorf("got %+v for %+v", got, m)
		}
		until(record, "delivered")
		if len(hook.got) != 0 {
			t.Errorf("it came again: %+v", <-hook.got)
		}
	})
	t.Run("it is tried again until it is parked, and again when it is replayed", func(t *testing.T) {
		hook.answer(http.StatusInternalServerError)
		record, m := complete("two", "billing")
		for range 3 {
			if got := <-hook.got; got.id != m.ID || !got.signed {
				t.Errorf("got %+v", got)
			}
		}
		if m := until(record, "parked"); m.Tries != 3 || m.Error.Code != "too_many_tries" {
			t.Errorf("got %+v", m)
		}
		hook.answer(http.StatusOK)
		path := s.admin("/v1/records/" + record + "/messages/" + m.ID)
		status, _, text := asRoot(t, "POST", path+"/replay", `{"reason":"it is back"}`)
		if status != 200 || !strings.Contains(text, `"error":{"code":"replayed","message":"it is back"}`) {
			t.Error(status, text)
		}
		if got := <-hook.got; got.id != m.ID || got.body != `{"key":"two"}` {
			t.Errorf("got %+v", got)
		}
		until(record, "delivered")
		if status, _, text := asRoot(t, "POST", path+"/replay", `{"reason":"again"}`); status != 409 {
			t.Error(status, text)
		}
	})
	t.Run("a message to nobody waits, and the service is ready", func(t *testing.T) {
		_, m := complete("three", "unknown")
		if m.State != "pending" {
			t.Errorf("got %+v", m)
		}
		if status, _, text := asRoot(t, "GET", s.admin("/readyz"), ""); status != 200 {
			t.Error(status, text)
		}
	})
	t.Run("a caller can't make a message count as delivered", func(t *testing.T) {
		hook.answer(http.StatusGone)
		record, m := complete("four", "billing")
		<-hook.got
		until(record, "parked")
		if status, _, text := asRoot(t, "POST", s.data("/v1/operations/"+url.PathEscape("semel.dispatch/billing")+"/executions"), `{}`, "Idempotency-Key", m.ID); status != http.StatusNotFound {
			t.Fatal(status, text)
		}
		hook.answer(http.StatusOK)
		if status, _, text := asRoot(t, "POST", s.admin("/v1/records/"+record+"/messages/"+m.ID+"/replay"), `{"reason":"it is back"}`); status != 200 {
			t.Fatal(status, text)
		}
		until(record, "delivered")
		if len(hook.got) != 1 {
			t.Fatalf("it was posted %d times", len(hook.got))
		}
		<-hook.got
	})
	t.Run("what happens to messages is logged, without payloads", func(t *testing.T) {
		text := s.log.String()
		for _, want := range []string{`outcome=delivered message=msg_`, `outcome=failed message=msg_`, `outcome=parked message=msg_`, `level=WARN msg=delivery door=dispatch`, `error="status 500"`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		if strings.Contains(text, `"key"`) || strings.Contains(text, "whsec") {
			t.Errorf("a payload or a secret is logged: %s", text)
		}
	})
	if len(hook.got) != 0 {
		t.Errorf("a message came too often: %+v", <-hook.got)
	}
}

// TestDispatchStops stops a service during a delivery, and starts it again.
func TestDispatchStops(t *testing.T) {
	begun := make(chan string, 10)
	var tries atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := tries.Add(1)
		begun <- r.Header.Get("webhook-id")
		if n == 1 {
			<-r.Context().Done() // until the service breaks it off
		}
	}))
	defer hook.Close()
	file := write(t, fmt.Sprintf(`
auth: {tokens: [{name: root, roles: [admin], sha256: %s}]}
store: {url: "pebble:%s/data"}
limits: {shutdown_grace: 50ms}
dispatch: {destinations: [{name: billing, operations: [default], url: %q, min_backoff: 10ms, max_backoff: 10ms, timeout: 1h, concurrency: 1, allow_private: true}]}
`, auth.HashToken(rootToken), t.TempDir(), hook.URL))
	s := start(t, file)
	_, _, text := asRoot(t, "POST", s.data("/v1/operations/default/executions"), `{}`, "Idempotency-Key", "one")
	var x struct{ Execution string }
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Fatal(err)
	}
	if status, _, text := asRoot(t, "POST", s.data("/v1/executions/"+x.Execution+"/complete"), `{"messages":[{"name":"a","destination":"billing"}]}`); status != 200 {
		t.Fatal(status, text)
	}
	first := <-begun
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	if !strings.Contains(s.log.String(), "outcome=failed") {
		t.Errorf("the try that was broken off is not recorded: %s", s.log)
	}
	start(t, file)
	if again := <-begun; again != first {
		t.Errorf("after the start came %s, not %s", again, first)
	}
}

// A destination takes messages only from the calls that its owner named.
func TestDestinationsSayWhoMaySend(t *testing.T) {
	hook := newReceiver(t, []byte(strings.Repeat("k", 32)))
	s := start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
auth: {tokens: [{name: acme, tenant: acme, sha256: %s}, {name: evil, tenant: evil, sha256: %s}]}
operations: [{name: pay}, {name: other}]
dispatch: {destinations: [{name: billing, operations: ["pa*"], tenants: [acme], url: %q, allow_private: true}]}
`, auth.HashToken("acme"), auth.HashToken("evil"), hook.URL)))
	complete := func(token, operation string) (status int, text string) {
		t.Helper()
		as := []string{"Authorization", "Bearer " + token}
		_, _, text = do(t, "POST", s.data("/v1/operations/"+operation+"/executions"), `{"key":"k"}`, as...)
		var begun struct{ Execution string }
		if err := json.Unmarshal([]byte(text), &begun); err != nil || begun.Execution == "" {
			t.Fatal(text, err)
		}
		status, _, text = do(t, "POST", s.data("/v1/executions/"+begun.Execution+"/complete"), `{"messages":[{"name":"a","destination":"billing","payload":{"paid":true}}]}`, as...)
		if status == http.StatusForbidden {
			// Nothing was recorded about the call, so it can complete without the
			// message.
			if status, _, text := do(t, "POST", s.data("/v1/executions/"+begun.Execution+"/complete"), `{}`, as...); status != 200 || strings.Contains(text, `"messages"`) {
				t.Error(status, text)
			}
		}
		return status, text
	}
	for _, by := range [][2]string{{"evil", "pay"}, {"acme", "other"}, {"evil", "other"}} {
		if status, text := complete(by[0], by[1]); status != http.StatusForbidden || !strings.Contains(text, `"code":"forbidden"`) {
			t.Error(by, status, text)
		}
	}
	if status, text := complete("acme", "pay"); status != http.StatusOK {
		t.Fatal(status, text)
	}
	<-hook.got
	if len(hook.got) != 0 {
		t.Error("more than one message arrived")
	}
}
