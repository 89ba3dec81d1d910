package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/semelhq/semel/protocol/activitypub"
)

// The states of a report.
const (
	received = "received"
	valid    = "valid"
)

// report is a row of the tracker's table.
type report struct {
	state              string
	created, validated int // how often
}

// tracker is a case tracker. It stands for a database: what is in it outlives the inbox.
type tracker struct {
	mu      sync.Mutex
	reports map[string]*report
	changes int
	lost    int // changes whose answer was lost
	again   int // times that a handler found its work done
}

// errLost is what a handler gets from a database whose answer is lost.
var errLost = errors.New("the connection broke after the commit")

// lose loses the answer to every fifth change.
func (t *tracker) lose() error {
	if t.changes++; t.changes%5 == 0 {
		t.lost++
		return errLost
	}
	return nil
}

// create inserts a report, unless it is there.
func (t *tracker) create(id string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reports[id] != nil {
		t.again++
		return false, nil
	}
	t.reports[id] = &report{state: received, created: 1}
	return true, t.lose()
}

// state is that of a report.
func (t *tracker) state(id string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.reports[id]
	switch {
	case r == nil:
		return "", errors.New("the report isn't here yet") // its offer is on its way
	case r.state == valid:
		t.again++
	}
	return r.state, nil
}

// validate changes the state of a report that is still in the state from.
func (t *tracker) validate(id, from string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.reports[id]
	if r.state != from {
		return fmt.Errorf("the report is %s by now", r.state)
	}
	r.state = valid
	r.validated++
	return t.lose()
}

// handle handles an activity. It looks at the state of the report first, because after a
// crash, or when the answer of the database is lost, it gets the activity again.
func (t *tracker) handle(ctx context.Context, log *slog.Logger, a *activitypub.Activity) error {
	var body struct {
		Object string `json:"object"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return &activitypub.Refusal{Code: "unreadable", Err: err}
	}
	switch a.Type {
	case "Offer":
		create := activitypub.Creation{
			Name:   "create_report",
			Create: func(context.Context) (bool, error) { return t.create(body.Object) },
		}
		return create.Take(ctx, log, a)
	case "Accept":
		validate := activitypub.Step[string]{
			Name: "validate_report", From: []string{received}, To: valid,
			State: func(context.Context) (string, error) { return t.state(body.Object) },
			Apply: func(_ context.Context, from string) error { return t.validate(body.Object, from) },
		}
		return validate.Take(ctx, log, a)
	}
	return nil
}

// done reports whether the reports are validated, and nobody is about to handle an
// activity again.
func (t *tracker) done(reports int) bool {
	var s summary
	t.count(&s)
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.Validated == reports && t.again >= t.lost
}

func (t *tracker) count(s *summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.reports {
		s.Created++
		if r.validated > 0 {
			s.Validated++
		}
		if r.created > 1 || r.validated > 1 {
			s.Twice++
		}
	}
	s.Again = t.again
}
