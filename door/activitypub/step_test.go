package activitypub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/internal/rig/clause"
)

// reports is a case tracker: reports of vulnerabilities by their ids, and their states.
type reports struct {
	mu     sync.Mutex
	states map[string]string
	events []string // what happened, which nobody should see twice
	lose   bool     // the next event happens, and its caller dies
}

func (r *reports) state(id string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[id], nil
}

func (r *reports) move(id, from, to, event string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states[id] != from {
		return fmt.Errorf("%s is %s by now", id, r.states[id])
	}
	r.states[id] = to
	r.events = append(r.events, event+" "+id)
	if r.lose {
		r.lose = false
		return errors.New("the connection broke")
	}
	return nil
}

func (r *reports) create(id string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.states[id]; there {
		return false, nil
	}
	r.states[id] = "received"
	r.events = append(r.events, "created "+id)
	return true, nil
}

// handler creates a report when it is offered, and validates it when it is accepted.
func (r *reports) handler(log *slog.Logger) activitypub.Handler {
	return func(ctx context.Context, a *activitypub.Activity) error {
		var body struct {
			Object string `json:"object"`
		}
		if err := json.Unmarshal(a.Body, &body); err != nil {
			return err
		}
		report := body.Object
		switch a.Type {
		case "Offer":
			create := activitypub.Creation{
				Name: "create_report", Create: func(context.Context) (bool, error) { return r.create(report) },
			}
			return create.Take(ctx, log, a)
		case "Accept":
			validate := activitypub.Step[string]{
				Name: "validate_report", From: []string{"received"}, To: "valid",
				State: func(context.Context) (string, error) { return r.state(report) },
				Apply: func(_ context.Context, from string) error { return r.move(report, from, "valid", "validated") },
			}
			return validate.Take(ctx, log, a)
		}
		return nil
	}
}

func about(kind, id, report string) string {
	return fmt.Sprintf(`{"type":%q,"id":"https://there.example/a/%s","actor":%q,"object":"https://there.example/r/%s"}`, kind, id, bob, report)
}

// newTracker is a world whose handler is a case tracker.
func newTracker(t *testing.T) (*world, *reports) {
	r := &reports{states: map[string]string{}}
	var handle activitypub.Handler
	w := newWorld(t, func(o *activitypub.Options) {
		o.Handle = func(ctx context.Context, a *activitypub.Activity) error { return handle(ctx, a) }
	})
	handle = r.handler(w.logger)
	return w, r
}

func (w *world) wantWorked(want int) {
	w.t.Helper()
	errs := w.work()
	if err := errors.Join(errs...); err != nil || len(errs) != want {
		w.t.Errorf("%d activities were handled, want %d: %v", len(errs), want, err)
	}
}

// TestValidateReport: two activities ask for the same step, and one that was handled comes
// out of the outbox again.
func TestValidateReport(t *testing.T) {
	clause.Proves(t, "VUL-04-001", "VUL-04-002", "VUL-04-003", "VUL-05-003")
	w, r := newTracker(t)
	w.want(202, "queued", about("Offer", "1", "x"))
	w.wantWorked(1)
	w.want(202, "queued", about("Accept", "2", "x"))
	again := slices.Clone(w.due)
	w.wantWorked(1)
	w.due = again
	w.wantWorked(1)
	w.want(202, "queued", about("Accept", "3", "x"))
	w.wantWorked(1)
	if want := []string{"created https://there.example/r/x", "validated https://there.example/r/x"}; !slices.Equal(r.events, want) {
		t.Errorf("%q", r.events)
	}
	changes, twice := w.logs.find("state changed"), w.logs.find("already done")
	if len(changes) != 1 || changes[0]["level"] != "INFO" || changes[0]["before"] != "received" || changes[0]["after"] != "valid" {
		t.Errorf("logged %v", changes)
	}
	if len(twice) != 2 || twice[0]["level"] != "INFO" || twice[0]["step"] != "validate_report" || twice[1]["activity_id"] != "https://there.example/a/3" {
		t.Errorf("logged %v", twice)
	}
}

func TestCreateReport(t *testing.T) {
	clause.Proves(t, "VUL-04-001", "VUL-04-003")
	w, r := newTracker(t)
	w.want(202, "queued", about("Offer", "1", "x"))
	w.want(202, "queued", about("Offer", "2", "x"))
	w.wantWorked(2)
	twice := w.logs.find("already exists")
	if len(r.events) != 1 || len(twice) != 1 || twice[0]["level"] != "INFO" || twice[0]["step"] != "create_report" {
		t.Errorf("%q, logged %v", r.events, twice)
	}
}

// TestAStepAfterACrash: the step happened, and its handler doesn't know.
func TestAStepAfterACrash(t *testing.T) {
	clause.Proves(t, "VUL-05-003")
	w, r := newTracker(t)
	r.states["https://there.example/r/x"], r.lose = "received", true
	w.want(202, "queued", about("Accept", "1", "x"))
	again := slices.Clone(w.due)
	if errs := w.work(); len(errs) != 1 || errs[0] == nil {
		t.Fatalf("%v", errs)
	}
	w.due = again
	w.wantWorked(1)
	if len(r.events) != 1 {
		t.Errorf("%q", r.events)
	}
}

// TestAStepThatIsTooLate can't happen however often it is tried, so its message is parked.
func TestAStepThatIsTooLate(t *testing.T) {
	w, r := newTracker(t)
	r.states["https://there.example/r/x"] = "closed"
	w.want(202, "queued", about("Accept", "1", "x"))
	errs := w.work()
	refusal, is := errors.AsType[*activitypub.Refusal](errs[0])
	if !is || refusal.Code != "invalid_transition" || len(r.events) > 0 {
		t.Errorf("%v, %q", errs, r.events)
	}
	if err := w.inbox.Work(t.Context(), []byte("no message")); err == nil {
		t.Error("a message of somebody else is handled")
	}
}
