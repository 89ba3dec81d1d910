package activitypub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const (
	// budget is long, because the machine may be busy.
	budget = time.Minute

	activityJSON = "application/activity+json"
	alice        = "https://here.example/actors/alice"
	bob          = "https://there.example/users/bob"
)

// world is an inbox of alice and carol, and what has been handled.
type world struct {
	t     *testing.T
	inbox *activitypub.Inbox
	store semel.Store
	door  semel.Internal
	// engine is the door's.
	engine *semel.Engine
	log    *evidence.Log
	logs   *logs
	// logger writes to logs.
	logger *slog.Logger

	mu       sync.Mutex
	answered []semel.Delivered
	due      [][]byte // payloads of messages
	handled  []*activitypub.Activity
	fail     error // what the handler returns
}

// newWorld makes a world in which everybody may be believed unsigned, unless change says
// otherwise.
func newWorld(t *testing.T, change func(*activitypub.Options)) *world {
	t.Helper()
	return newWorldOn(t, memstore.New(), change)
}

func newWorldOn(t *testing.T, st semel.Store, change func(*activitypub.Options)) *world {
	t.Helper()
	keys, err := evidence.GenerateKeys("here.example/inbox")
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: st, log: log, logs: new(logs)}
	w.logger = slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	write := door.Log(w.logger, slog.LevelInfo)
	answered := func(e semel.Delivered) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answered = append(w.answered, e)
		write.Answered(e)
	}
	engine, err := semel.New(st, &semel.Options{Witness: log, Events: &semel.Events{Answered: answered, Troubled: write.Troubled}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(log.Close(ctx), engine.Close(ctx), st.Close()); err != nil {
			t.Error(err)
		}
	})
	w.engine, w.door = engine, engine.Internal()
	opts := activitypub.Options{
		Tenant: "fedi", Actors: "https://here.example/actors/{actor}", Shared: "/inbox", Budget: budget,
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice" || actor == "carol", nil },
		Policies: activitypub.Policies{{Host: "*", Unsigned: true}},
		Handle:   w.handle,
	}
	if change != nil {
		change(&opts)
	}
	if w.inbox, err = activitypub.New(engine, opts); err != nil {
		t.Fatal(err)
	}
	engine.Internal().SetDispatcher(func(rec *semel.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range rec.Outbox {
			if rec.Outbox[i].Destination != w.inbox.Destination() {
				t.Errorf("a message to %s", rec.Outbox[i].Destination)
			}
			w.due = append(w.due, rec.Outbox[i].Payload)
		}
	})
	return w
}

func (w *world) handle(_ context.Context, a *activitypub.Activity) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handled = append(w.handled, a)
	return w.fail
}

// post delivers a body to a path. Headers are names and values in turn.
func (w *world) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "https://here.example"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", activityJSON)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.inbox.ServeHTTP(rec, r)
	return rec
}

// want delivers a body to alice and checks the status and a part of the answer.
func (w *world) want(status int, part, body string, headers ...string) {
	w.t.Helper()
	w.wantAt("/actors/alice/inbox/", status, part, body, headers...)
}

func (w *world) wantAt(path string, status int, part, body string, headers ...string) {
	w.t.Helper()
	rec := w.post(path, body, headers...)
	if rec.Code != status || !strings.Contains(rec.Body.String(), part) {
		w.t.Errorf("%s to %s: %d %s, want %d with %q", body, path, rec.Code, rec.Body, status, part)
	}
	var answer struct {
		Status     int     `json:"status"`
		Error      string  `json:"error"`
		Message    string  `json:"message"`
		ActivityID *string `json:"activity_id"`
		Action     string  `json:"action"`
	}
	dec := json.NewDecoder(rec.Body)
	dec.DisallowUnknownFields()
	want := map[int]string{202: "", 403: "stop", 429: "wait", 503: "wait"}
	action, listed := want[status]
	if !listed {
		action = "fix_request"
	}
	if err := dec.Decode(&answer); err != nil || answer.Status != status || answer.Message == "" || (answer.Error == "") != (status == http.StatusAccepted) || answer.Action != action {
		w.t.Errorf("answer %+v, %v", answer, err)
	}
}

// work passes what was taken to the inbox, as a dispatcher does, and returns its errors.
func (w *world) work() (errs []error) {
	w.mu.Lock()
	due := w.due
	w.due = nil
	w.mu.Unlock()
	for _, payload := range due {
		errs = append(errs, w.inbox.Work(w.t.Context(), payload))
	}
	return errs
}

// settle says what became of an activity in an inbox.
func (w *world) settle(id, inbox string, state store.MessageState) {
	w.t.Helper()
	call := (&semel.Call{
		Tenant: "fedi", Principal: activitypub.Principal, Scope: "actor:" + inbox, Operation: w.inbox.Destination(), Key: id,
	}).ID(semel.SharePrincipal)
	rec, err := w.store.Get(w.t.Context(), call)
	if err == nil {
		_, err = w.door.SettleMessage(w.t.Context(), call, rec.Outbox[0].ID, store.MessageFinding{State: state})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// inboxes are the inboxes in which an activity was handled.
func (w *world) inboxes(id string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []string{}
	for _, a := range w.handled {
		if a.ID == id {
			list = append(list, a.Inbox)
		}
	}
	slices.Sort(list)
	return list
}

// conflicts are what the evidence log has about conflicts.
func (w *world) conflicts() (found []evidence.Payload) {
	w.t.Helper()
	ctx := context.Background()
	if err := errors.Join(w.log.Close(ctx), w.log.Integrate(ctx)); err != nil {
		w.t.Fatal(err)
	}
	reader, err := w.log.Reader(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	_, at := reader.Checkpoint()
	for n := range at.Size {
		en, err := reader.Entry(ctx, n)
		if err != nil {
			w.t.Fatal(err)
		}
		leaf, err := evidence.ParseArtifact(en.Leaf)
		if err != nil {
			w.t.Fatal(err)
		}
		if leaf.Payload.Decision == evidence.DecisionConflict {
			found = append(found, leaf.Payload)
		}
	}
	return found
}

// logs are the lines that were logged.
type logs struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (l *logs) Write(line []byte) (int, error) {
	var m map[string]any
	if err := json.Unmarshal(bytes.TrimSpace(line), &m); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, m)
	return len(line), nil
}

// find returns the lines with a message, or those of deliveries with a note.
func (l *logs) find(message string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for _, m := range l.lines {
		if m["msg"] == message || m["msg"] == door.Delivered && m["note"] == message {
			found = append(found, m)
		}
	}
	return found
}

// signedBy is a verifier that believes the header Signed-By.
type signedBy struct{}

func (signedBy) VerifyActor(r *http.Request, _ []byte, _ string) (httpsig.Signer, error) {
	switch actor := r.Header.Get("Signed-By"); actor {
	case "":
		return httpsig.Signer{}, &httpsig.Error{Code: httpsig.SignatureMissing, Err: errors.New("the request isn't signed")}
	case "nobody knows":
		return httpsig.Signer{}, &httpsig.Error{Code: httpsig.KeyUnavailable, Err: errors.New("the key can't be fetched")}
	case "gone":
		return httpsig.Signer{}, &httpsig.Error{Code: httpsig.KeyGone, Err: errors.New("the key's server answers 410")}
	case "forger":
		return httpsig.Signer{}, &httpsig.Error{Code: httpsig.SignatureWrong, Err: errors.New("the signature is wrong")}
	default:
		return httpsig.Signer{Actor: actor, KeyID: actor + "#main-key"}, nil
	}
}
