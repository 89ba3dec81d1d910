package activitypub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/store"
)

// outcome is what became of one activity in all inboxes that it is for.
type outcome struct {
	inboxes int    // that it is for
	fresh   int    // in which it is new
	first   string // the digest of another activity with its id, if there is one
}

// message says it to the sender and the log.
func (o *outcome) message() string {
	switch {
	case o.first != "":
		return "not processed: another activity has this id"
	case o.fresh == 0:
		return "already processed"
	}
	return "queued for processing"
}

// take makes an activity durable in every inbox that it is for.
func (in *Inbox) take(ctx context.Context, a *Activity) (outcome, error) {
	inboxes, err := in.inboxes(ctx, a)
	if err != nil {
		return outcome{}, err
	}
	var mu sync.Mutex
	total := outcome{inboxes: len(inboxes)}
	err = webhook.TakeAll(ctx, inboxes, func(ctx context.Context, inbox *string) error {
		got, err := in.takeInto(ctx, a, *inbox)
		mu.Lock()
		defer mu.Unlock()
		total.fresh += got.fresh
		total.first = cmp.Or(total.first, got.first)
		return err
	})
	if err != nil {
		return outcome{}, err // some may still be under way
	}
	return total, nil
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
		if !named[a.Inbox] && !others {
			return nil, malformed("the activity is for others than the actor of this inbox")
		}
		return []string{a.Inbox}, in.exist(ctx, a.Inbox)
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
	call := semel.Call{
		Tenant: in.opts.Tenant, Principal: Principal, Scope: scopeOf(inbox), Operation: in.Destination(), Key: keyOf(a.ID),
		Fingerprint: a.print, Wait: in.opts.Budget, Door: "activitypub",
	}
	var ans semel.Answer
	var err error
	if a.foreign {
		// Whoever could use up an id of another server would keep its activity out. So
		// this one gets what there is, and is never the first.
		if ans, err = in.engine.Door().Peek(ctx, call); err == nil && ans.Decision == semel.Execute {
			return outcome{}, strange()
		}
		if err == nil {
			err = ans.Err()
		}
	} else {
		ans, err = in.engine.Do(ctx, call, func(_ context.Context, x semel.Execution) (semel.Result, error) {
			return semel.Result{}, in.send(x, a, inbox)
		})
	}
	switch {
	case ans.Decision == semel.Conflict:
		return outcome{first: ans.Record.Fingerprint.String()}, nil
	case ans.Decision == semel.Throttled:
		return outcome{}, &fault{status: http.StatusTooManyRequests, name: "TooManyRequests", err: errors.New("too many activities at once"), after: ans.RetryAfter}
	case err != nil:
		return outcome{}, err
	case ans.Decision == semel.Execute:
		return outcome{fresh: 1}, nil
	}
	return outcome{}, nil
}

func strange() error {
	return unprocessable("the id of the activity is that of another server than its actor's")
}

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
	sum := sha256.Sum256([]byte(id))
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
