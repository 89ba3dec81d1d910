package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store"
)

// TestProcessedActivities: lists and stories have an activity once, with who sent it and what its
// handler said, by its id and by its actor.
func TestProcessedActivities(t *testing.T) {
	clause.Proves(t, "VUL-02-004", "VUL-02-006")
	const bob = "https://there.example/users/bob"
	dir, engine, leave := newStore(t, nil)
	inbox, err := activitypub.New(engine, activitypub.Options{
		Actors: "https://here.example/actors/{actor}", Policies: activitypub.Policies{{Host: "*", Unsigned: true}}, Budget: time.Minute,
		Exists: func(context.Context, string) (bool, error) { return true, nil },
		Handle: func(_ context.Context, a *activitypub.Activity) error {
			if a.Type == "Accept" {
				return &activitypub.Refusal{Code: "no_such_report", Err: errors.New("there is no report x")}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	deliver := func(ctx context.Context, d dispatch.Delivery) error {
		err := inbox.Work(ctx, d.Message.Payload)
		if refused, ok := errors.AsType[*activitypub.Refusal](err); ok {
			return dispatch.Park(string(refused.Code), refused.Err)
		}
		return err
	}
	d, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{inbox.Destination(): {Sender: dispatch.SenderFunc(deliver)}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	post := func(kind, id, object string) {
		t.Helper()
		body := `{"type":"` + kind + `","id":"https://there.example/a/` + id + `","actor":"` + bob + `","object":"` + object + `"}`
		r := httptest.NewRequest(http.MethodPost, "https://here.example/actors/alice/inbox", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/activity+json")
		rec := httptest.NewRecorder()
		if inbox.ServeHTTP(rec, r); rec.Code != http.StatusAccepted {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
	post("Offer", "1", "x")
	post("Accept", "2", "x")
	post("Accept", "2", "x")
	post("Accept", "2", "y") // another activity with the id
	err = stage.Until(t.Context(), func() bool {
		page, err := engine.Search(t.Context(), store.Query{})
		settled := 0
		for i := range page.Records {
			if rec := &page.Records[i]; len(rec.Outbox) == 1 && rec.Outbox[0].SettledAt != 0 {
				settled++
			}
		}
		return err == nil && settled == 2
	})
	stop()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	leave()
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append(args, "--store", "pebble:"+dir)...)
		if code != ExitOK {
			t.Fatalf("%q: exit %d, %s", args, code, errs)
		}
		return out
	}
	want := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("it doesn't say %q:\n%s", part, out)
			}
		}
	}
	list := run("records", "list", "operation:activitypub.inbox")
	want(list, "https://there.example/a/1", "message item delivered", "message item parked: no_such_report")
	if n := strings.Count(list, "\n"); n != 3 {
		t.Errorf("two activities in %d lines:\n%s", n-1, list)
	}
	want(run("records", "list", "--wide", "attribute:actor="+bob, "attribute:type=Accept"), "actor="+bob+" signed=false type=Accept", "a/2")
	story := run("why", "https://there.example/a/2")
	want(story, "key https://there.example/a/2", "actor: "+bob, "type: Accept", "signed: false", "message item to activitypub.inbox: parked after one failed try: no_such_report: there is no report x",
		"No other call of this operation and tenant that is still kept has its fingerprint")
	if strings.Contains(story, "calls have this name") {
		t.Errorf("it is more than one story:\n%s", story)
	}
	var found []json.RawMessage
	if err := json.Unmarshal([]byte(run("why", "--json", "https://there.example/a/2")), &found); err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	// The record of the id, for all inboxes, is there if its principal is named.
	want(run("records", "list", "principal:activitypub␟activity"), "a/1", "a/2")
}
