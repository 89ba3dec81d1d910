package activitypub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/inbox"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/store"
)

// outcome is what became of one activity in all inboxes that it is for. Each counts once.
type outcome struct {
	inboxes   int    // that it is for
	fresh     int    // in which it is new
	queued    int    // in which it was taken before and isn't handled yet
	parked    int    // in which it was taken before and waits for an operator
	conflicts int    // in which another activity with its id was taken, or might be
	first     string // the digest of that one
}

func (o *outcome) add(got outcome) {
	o.fresh += got.fresh
	o.queued += got.queued
	o.parked += got.parked
	o.conflicts += got.conflicts
	o.first = cmp.Or(o.first, got.first)
}

// message says it to the sender and the log. It has to be true of every inbox
// (VUL-03-004).
func (o *outcome) message() string {
	var parts []string
	say := func(n int, what string) {
		if n > 0 && n < o.inboxes {
			what += fmt.Sprintf(" in %d of %d inboxes", n, o.inboxes)
		}
		if n > 0 {
			parts = append(parts, what)
		}
	}
	say(o.fresh, "queued for processing")
	say(o.queued, "already queued for processing")
	say(o.parked, "already received, and waiting for an operator")
	say(o.inboxes-o.fresh-o.queued-o.parked-o.conflicts, "already processed")
	if say(o.conflicts, "not processed"); o.conflicts > 0 {
		parts[len(parts)-1] += ": another activity has this id"
	}
	return strings.Join(parts, "; ")
}

// take makes an activity durable in every inbox that it is for. It returns when ctx is
// done; what has begun continues, and another delivery finds its outcome.
func (in *Inbox) take(ctx context.Context, a *Activity) (outcome, error) {
	inboxes, err := in.inboxes(ctx, a)
	if err != nil {
		return outcome{}, err
	}
	var mu sync.Mutex
	total := outcome{inboxes: len(inboxes)}
	err = inbox.Each(ctx, []*Activity{a}, func(ctx context.Context, _ **Activity) error {
		// The rest is worth finishing for the next delivery. The engine bounds each call
		// of the store.
		ctx = context.WithoutCancel(ctx)
		got, err := in.compare(ctx, a)
		if err != nil || got.conflicts > 0 {
			mu.Lock()
			defer mu.Unlock()
			total.conflicts, total.first = total.inboxes, got.first
			return err
		}
		return inbox.Each(ctx, inboxes, func(ctx context.Context, owner *string) error {
			got, err := in.takeInto(ctx, a, *owner)
			mu.Lock()
			defer mu.Unlock()
			total.add(got)
			return err
		})
	})
	if err != nil {
		return outcome{}, err // some may still be under way
	}
	return total, nil
}

// compare holds an activity against the one with its id that came first, to whichever
// inbox of this server (VUL-01-003). The record of that is taken before those of the
// inboxes. A crash in between leaves it without them, and the sender without its 202: the
// next delivery has the same content, and goes on.
func (in *Inbox) compare(ctx context.Context, a *Activity) (outcome, error) {
	call := in.call(a, scopeAll)
	ans, err := in.decide(ctx, a, call, func(semel.Execution) error { return nil })
	if err != nil || ans.Decision != semel.Conflict {
		return outcome{}, err
	}
	return outcome{conflicts: 1, first: ans.Record.Fingerprint.String()}, nil
}

// maxInboxes bounds into how many inboxes one activity goes: each is looked up, and each
// keeps the body until it is handled.
const maxInboxes = 100

// inboxes are the names of the actors whose inbox an activity is for; an empty one is that
// of nobody in particular.
func (in *Inbox) inboxes(ctx context.Context, a *Activity) ([]string, error) {
	named := map[string]bool{}
	others := len(a.to) == 0
	for _, uri := range a.to {
		if actor, is := in.actors.actor(uri); is {
			named[actor] = true
		} else {
			others = true // it may be a collection that the actor is in
		}
	}
	if a.Inbox != "" {
		// Whose inbox isn't there comes before whom the activity is for.
		if err := in.exist(ctx, a.Inbox); err != nil {
			return nil, err
		}
		if !named[a.Inbox] && !others {
			return nil, malformed("the activity is for others than the actor of this inbox")
		}
		return []string{a.Inbox}, nil
	}
	if len(named) > maxInboxes {
		return nil, unprocessable("the activity names more than %d actors of this server", maxInboxes)
	}
	var inboxes []string
	for actor := range named {
		err := in.exist(ctx, actor)
		if err == nil {
			inboxes = append(inboxes, actor)
		} else if _, absent := errors.AsType[*fault](err); !absent {
			return nil, err
		}
	}
	if len(inboxes) > 0 || others {
		if len(inboxes) == 0 {
			inboxes = []string{""}
		}
		return inboxes, nil
	}
	return nil, notFound()
}

// exist returns a fault if there is no such actor, and another error if nobody knows.
func (in *Inbox) exist(ctx context.Context, actor string) error {
	there, err := in.opts.Exists(ctx, actor)
	if err == nil && !there {
		err = notFound()
	}
	return err
}

// takeInto makes an activity durable in one inbox, once (VUL-02-001). An error means that
// it isn't, or that it isn't known.
func (in *Inbox) takeInto(ctx context.Context, a *Activity, inbox string) (outcome, error) {
	ans, err := in.decide(ctx, a, in.call(a, scopeOf(inbox)), func(x semel.Execution) error { return in.send(x, a, inbox) })
	switch {
	case err != nil:
		return outcome{}, err
	case ans.Decision == semel.Conflict:
		return outcome{conflicts: 1, first: ans.Record.Fingerprint.String()}, nil
	case ans.Decision == semel.Execute:
		return outcome{fresh: 1}, nil
	}
	for _, m := range ans.Record.Outbox {
		switch m.State {
		case store.MessagePending:
			return outcome{queued: 1}, nil
		case store.MessageParked:
			return outcome{parked: 1}, nil
		}
	}
	return outcome{}, nil
}

// call is an activity as the engine takes it.
func (in *Inbox) call(a *Activity, scope string) semel.Call {
	if a.origin == "" {
		// An id without a host is nobody's, so it counts within its actor: whoever
		// learns it could use it up otherwise.
		scope += " " + digestOf(a.Actor)
	}
	return semel.Call{
		Tenant: in.opts.Tenant, Principal: Principal, Scope: scope, Operation: in.Destination(), Key: keyOf(a.ID),
		Fingerprint: a.print, Wait: in.opts.Budget, Door: "activitypub",
	}
}

// decide runs something for an activity, once. Its answer is Execute, Replay or Conflict if
// the error is nil.
func (in *Inbox) decide(ctx context.Context, a *Activity, call semel.Call, run func(x semel.Execution) error) (ans semel.Answer, err error) {
	if a.foreign {
		// Whoever could use up an id of another server would keep its activity out. So
		// this one gets what there is, and is never the first.
		if ans, err = in.engine.Door().Peek(ctx, call); err == nil && ans.Decision == semel.Execute {
			return ans, strange()
		}
		if err == nil {
			err = ans.Err()
		}
	} else {
		ans, err = in.engine.Do(ctx, call, func(_ context.Context, x semel.Execution) (semel.Result, error) {
			return semel.Result{}, run(x)
		})
	}
	switch ans.Decision {
	case semel.Conflict:
		return ans, nil
	case semel.Throttled:
		return ans, &fault{status: http.StatusTooManyRequests, name: "TooManyRequests", err: errors.New("too many activities at once"), after: ans.RetryAfter}
	}
	return ans, err
}

func strange() error {
	return unprocessable("the id of the activity is that of another server than its actor's")
}

// scopeAll is the scope of the record that holds what came first under an id. Names of
// inboxes can't make it.
const scopeAll = "activity"

// scopeOf is the part of an identity that says which inbox it is.
func scopeOf(inbox string) string {
	if inbox == "" {
		return "shared"
	}
	return "actor:" + inbox
}

// keyOf is the key of an activity: its id, or the digest of one that is too long.
func keyOf(id string) string {
	if len(id) <= store.MaxKeyLen/2 && store.ValidText(id) {
		return id
	}
	return digestOf(id)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// send has the activity handled by way of the outbox of its record.
func (in *Inbox) send(x semel.Execution, a *Activity, inbox string) error {
	digest := x.ID().Digest()
	line, err := json.Marshal(taken{
		"act_" + hex.EncodeToString(digest[:16]), a.Tenant, a.ID, a.Type, a.Actor, a.Signed, inbox, a.Correlation, in.opts.Now().UTC(),
	})
	if err == nil {
		payload := append(append(line, '\n'), a.Body...)
		err = semel.Send(x, semel.Message{Name: "activity", Destination: in.Destination(), ContentType: "application/octet-stream", Payload: payload})
	}
	if err != nil {
		return semel.Aborted(err)
	}
	// A crash before the outcome is written leaves a lease that ends, and a sender
	// without its 202. A crash after it leaves a due message in the outbox, and the
	// sender's next delivery is a duplicate.
	return nil
}

// Work handles an activity that was taken: payload is that of a message to
// [Inbox.Destination]. It returns nil when the activity is handled. Park the message if
// the error is a [*Refusal]; after any other, call Work again.
func (in *Inbox) Work(ctx context.Context, payload []byte) error {
	a, err := decode(payload)
	if err != nil {
		return &Refusal{Code: webhook.CodeUnreadable, Err: err}
	}
	in.log.LogAttrs(ctx, slog.LevelDebug, "handling activity", a.attrs()...)
	// A crash in here leaves the message due, and the handler gets the activity again.
	if err := in.opts.Handle(ctx, a); err != nil {
		in.log.LogAttrs(ctx, slog.LevelError, "activity not handled", append(a.attrs(), slog.Any("error", err))...)
		return err
	}
	return nil
}

// Refusal is an error of a handler that would be the same if the handler got the activity
// again.
type Refusal = webhook.Refusal

// taken is the first line of an activity in the outbox; its body follows as it came.
type taken struct {
	Delivery    string    `json:"delivery"`
	Tenant      string    `json:"tenant"`
	ID          string    `json:"id"`
	Type        string    `json:"type"`
	Actor       string    `json:"actor,omitempty"`
	Signed      bool      `json:"signed"`
	Inbox       string    `json:"inbox,omitempty"`
	Correlation string    `json:"correlation,omitempty"`
	ReceivedAt  time.Time `json:"received_at"`
}

func decode(payload []byte) (*Activity, error) {
	line, body, _ := bytes.Cut(payload, []byte("\n"))
	var t taken
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, errors.New("the message is not one of an inbox")
	}
	return &Activity{
		Delivery: t.Delivery, Tenant: t.Tenant, ID: t.ID, Type: t.Type, Actor: t.Actor, Signed: t.Signed, Inbox: t.Inbox,
		Correlation: t.Correlation, ReceivedAt: t.ReceivedAt, Body: body,
	}, nil
}
