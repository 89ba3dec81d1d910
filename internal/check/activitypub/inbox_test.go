package activitypub_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// fault is what is wrong with an inbox.
type fault string

// inbox is a small inbox that does what the sentences say, but for a fault.
type inbox struct {
	fault
	handler  string // the URL of the outside system
	verifier *httpsig.Verifier

	mu     sync.Mutex
	first  map[string]string // the content by the id
	poison map[string]bool   // ids that came with another content
	group  string            // that is being judged
	begun  bool              // an activity of it has come
	held   string            // the first one's key, if meet lets it wait
	until  chan struct{}     // closed when what waits for another delivery may go on
}

// began says which group is judged.
func (in *inbox) began(group string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.group, in.begun, in.held = group, false, ""
}

// now is the group that is judged.
func (in *inbox) now() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.group
}

// meet returns what a delivery has to wait for, and reports whether it is the first of its group, and
// the second. The first of those at once waits for the second; the second of one whose sender leaves
// waits until the first is over.
func (in *inbox) meet(key string) (wait chan struct{}, first, second bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	first = !in.begun
	in.begun = true
	switch {
	case first && (in.group == "gone" || in.group == "concurrent"):
		in.held, in.until = key, make(chan struct{})
		return in.until, true, false
	case in.held != key:
		return nil, false, false
	case in.group == "gone":
		return in.until, false, true
	}
	in.held = ""
	close(in.until)
	return nil, false, true
}

// knows reports whether an activity has been handled.
func (in *inbox) knows(key string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, known := in.first[key]
	return known
}

// atOnce is one of two faults of those at once.
func (in *inbox) atOnce(key, body string) int {
	known := in.knows(key)
	wait, first, second := in.meet(key)
	switch {
	case second && in.fault == "refuses those at once":
		return http.StatusConflict
	case first:
		<-wait
	}
	if in.fault == "looks and then acts" && !known {
		in.handle(body)
		in.once(key, body)
	} else if fresh, _ := in.once(key, body); fresh {
		in.handle(body)
	}
	return http.StatusAccepted
}

// forget is the fault of those who leave.
func (in *inbox) forget(r *http.Request, key, body string) int {
	wait, first, second := in.meet(key)
	if second {
		<-wait
	}
	if fresh, _ := in.once(key, body); fresh {
		in.handle(body)
	}
	if first {
		<-r.Context().Done()
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.first, key)
		close(wait)
	}
	return http.StatusAccepted
}

// newInbox serves an inbox.
func newInbox(t *testing.T, is fault, handler string) (in *inbox, url string) {
	verifier, err := httpsig.New(httpsig.Options{Keys: httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true})})
	if err != nil {
		t.Fatal(err)
	}
	in = &inbox{fault: is, handler: handler, verifier: verifier, first: map[string]string{}, poison: map[string]bool{}}
	srv := httptest.NewServer(in)
	t.Cleanup(srv.Close)
	return in, srv.URL + "/inbox"
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a struct {
		ID, Actor, Type string
		Object          json.RawMessage
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &a) != nil {
		http.Error(w, "an activity, please", http.StatusBadRequest)
		return
	}
	if status := in.verify(r, body, a.Actor); status != 0 {
		if in.fault == "remembers forgeries" {
			in.once(a.ID, string(body))
		}
		w.WriteHeader(status)
		return
	}
	if a.Type != "Offer" || in.fault == "takes nothing" || in.fault == "keeps two servers apart" && r.Header.Get("Signature-Input") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if u, err := url.Parse(a.ID); a.ID == "" && in.fault != "makes ids up" || a.ID != "" && (err != nil || u.Host == "") && in.fault != "takes any id" {
		http.Error(w, "an id, please", http.StatusBadRequest)
		return
	}
	status := in.take(r, a.ID, a.Actor, string(a.Object), string(body))
	if in.fault == "answers 200" {
		status = http.StatusOK
	}
	w.WriteHeader(status)
}

// verify returns the status of a refusal.
func (in *inbox) verify(r *http.Request, body []byte, actor string) int {
	signer, err := in.verifier.VerifyActor(r, body, actor)
	refused, _ := errors.AsType[*httpsig.Error](err)
	switch {
	case refused == nil && (signer.Actor == actor || in.fault == "takes any signer"):
		return 0
	case refused != nil && refused.Code == map[fault]httpsig.Code{"takes the unsigned": httpsig.SignatureMissing, "ignores the digest": httpsig.DigestWrong}[in.fault]:
		return 0
	case refused != nil && in.fault == "reads no signature" && refused.Code != httpsig.SignatureMissing && refused.Code != httpsig.DigestWrong:
		return 0
	}
	return http.StatusUnauthorized
}

// once reports whether an activity is new, and whether another content came first.
func (in *inbox) once(key, content string) (fresh, other bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	first, known := in.first[key]
	if in.first[key] = content; known {
		in.first[key] = first
	}
	return !known, known && first != content
}

// take handles an activity, unless it was handled before, and returns the status.
func (in *inbox) take(r *http.Request, id, actor, object, body string) int {
	key := map[fault]string{
		"knows nothing": time.Now().String(), "goes by the content": object, "compares contents": id + body, "goes by the actor": actor + id,
	}[in.fault]
	if in.fault == "goes by the content" {
		key = key[strings.LastIndex(key, `"content"`):]
	}
	if key == "" {
		key = id
	}
	switch group := in.now(); {
	case group == "concurrent" && (in.fault == "looks and then acts" || in.fault == "refuses those at once"):
		return in.atOnce(key, body)
	case group == "gone" && in.fault == "forgets those who leave":
		return in.forget(r, key, body)
	}
	fresh, other := in.once(key, body)
	switch {
	case in.fault == "is slow" && !fresh:
		<-time.After(120 * time.Millisecond)
	case in.fault == "answers 409" && !fresh:
		return http.StatusConflict
	case in.fault == "gives up an id with two contents":
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.poison[key] = in.poison[key] || other; in.poison[key] {
			return http.StatusConflict
		}
	}
	if fresh && in.fault != "tells nobody" {
		in.handle(body)
	}
	return http.StatusAccepted
}

func (in *inbox) handle(body string) {
	if resp, err := http.Post(in.handler, "application/json", strings.NewReader(body)); err == nil {
		_ = resp.Body.Close()
	}
}
