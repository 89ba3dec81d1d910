package activitypub

import (
	"context"
	"log/slog"
	"slices"

	"github.com/semelhq/semel/door/inbox"
)

// Step is a change of the state of an object by an activity, such as validating a report.
// It happens once, however often the handler runs (VUL-04-001).
type Step[S comparable] struct {
	// Name of the step, for logs, such as "validate_report".
	Name string
	// From lists the states in which the step may start; To is the state in which it ends.
	From []S
	To   S
	// State reads the object's state.
	State func(ctx context.Context) (S, error)
	// Apply changes the state, if it is still from, and does everything else that belongs to
	// the step in the same transaction. If it returns nil without having changed anything, two
	// concurrent handlers both believe that they did it.
	Apply func(ctx context.Context, from S) error
}

// Take makes the step, if it was not made before. If the object is already in the state To,
// nothing happens and an attempted re-execution is logged at INFO (VUL-04-002, VUL-04-003). If
// it is in none of From, the error is a [*Refusal], since the activity came too late.
func (s *Step[S]) Take(ctx context.Context, log *slog.Logger, a *Activity) error {
	state, err := s.State(ctx)
	if err != nil {
		return err
	}
	attrs := append(a.Attrs(), slog.String("step", s.Name), slog.Any("before", state))
	if state == s.To {
		log.LogAttrs(ctx, slog.LevelInfo, "already done", attrs...)
		return nil
	}
	if !slices.Contains(s.From, state) {
		return inbox.Refuse("invalid_transition", "%s can't happen in the state %v", s.Name, state)
	}
	// A crash in Apply leaves its transaction undone, or the state in To; the next run sees
	// which.
	if err := s.Apply(ctx, state); err != nil {
		return err
	}
	log.LogAttrs(ctx, slog.LevelInfo, "state changed", append(attrs, slog.Any("after", s.To))...)
	return nil
}

// Creation makes an object that an activity announces, such as a report, once (VUL-04-001).
type Creation struct {
	// Name of the step, for logs, such as "create_report".
	Name string
	// Create makes the object, and reports false if it exists already. Let the store
	// decide that by a unique column, not by reading first.
	Create func(ctx context.Context) (created bool, err error)
}

// Take makes the object. If it already exists, an attempted re-execution is logged at INFO
// (VUL-04-003).
func (c *Creation) Take(ctx context.Context, log *slog.Logger, a *Activity) error {
	created, err := c.Create(ctx)
	if err != nil {
		return err
	}
	message := "created"
	if !created {
		message = "already exists"
	}
	log.LogAttrs(ctx, slog.LevelInfo, message, append(a.Attrs(), slog.String("step", c.Name))...)
	return nil
}
