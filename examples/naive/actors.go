package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// inbox takes activities from other servers, and ignores one that it has handled.
func (s *service) inbox(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var activity struct{ ID string }
	// The mistake: nobody asks who has sent it, so anybody can use up the id of somebody else.
	if err := cmp.Or(err, json.Unmarshal(body, &activity)); err != nil {
		http.Error(w, "that is no activity", http.StatusBadRequest)
		return
	}
	s.handle(w, r, activity.ID, body, http.StatusAccepted)
}

// agent is one of the SDK of A2A: it charges what a message says. Nothing in the SDK looks at the
// messageId, so each delivery of a message is a task of its own.
type agent struct{ *service }

// Execute charges what the message says.
func (a agent) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if _, _, err := a.charge(ctx, []byte(x.Message.Parts[0].Text())); err != nil {
			yield(nil, err)
		} else if yield(a2a.NewSubmittedTask(x, x.Message), nil) {
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		}
	}
}

// Cancel does nothing: the charge happens at once.
func (a agent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}
