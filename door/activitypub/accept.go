package activitypub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/store"
)

// outcome is the result of one activity in all inboxes that it is for. Each inbox counts once.
type outcome struct {
	inboxes   int             // inboxes that it is for
	fresh     int             // where it is new
	queued    int             // where it was accepted before and isn't handled yet
	parked    int             // where it was accepted before and waits for an operator
	conflicts int             // where another activity with its id was accepted, or might be
	first     string          // the digest of that activity
	told      semel.Delivered // the engine's decision about the first activity under its id
}

// event returns the outcome as an engine's event.
func (o *outcome) event() semel.Delivered {
	e := o.told
	e.Decision, e.Status = semel.Replay, http.StatusAccepted
	switch {
	case o.conflicts > 0:
		e.Decision, e.Code = semel.Conflict, semel.CodeConflict
	case o.fresh > 0:
		e.Decision = semel.Execute
	}
	return e
}

func (o *outcome) add(r *inbox.Result) {
	switch {
	case r.Decision == semel.Conflict:
		o.conflicts++
		o.first = r.First.String()
	case r.Decision == semel.Execute:
		o.fresh++
	case r.Message == store.MessagePending:
		o.queued++
	case r.Message == store.MessageParked:
		o.parked++
	}
}

// message says for the sender and the log what happened. It has to be true of every inbox
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

// accept makes an activity durable in every inbox that it is for. If ctx is done it returns;
// calls that have begun continue, and another delivery finds their outcome.
func (in *Inbox) accept(ctx context.Context, a *Activity) (outcome, error) {
	owners, err := in.inboxes(ctx, a)
	if err != nil {
		return outcome{}, err
	}
	var mu sync.Mutex
	total := outcome{inboxes: len(owners)}
	err = inbox.Until(ctx, func(ctx context.Context) error {
		// The rest is worth finishing for the next delivery. The engine bounds each call to the
		// store.
		ctx = context.WithoutCancel(ctx)
		// One record holds the first activity under the id, in any inbox of this server
		// (VUL-01-003). A crash after it leaves the inboxes without their records, and the
		// sender without its 202: the next delivery has the same content, and continues.
		all := in.item(a, scopeAll)
		all.Now = func(context.Context) error { return nil }
		first, err := in.once(ctx, a, all)
		if err != nil {
			return err
		}
		total.told = first.Told
		if first.Decision == semel.Conflict {
			total.conflicts, total.first = total.inboxes, first.First.String()
			return in.tell(ctx, a, owners, &total.told.ID)
		}
		return inbox.Each(ctx, owners, func(ctx context.Context, owner *string) error {
			it := in.item(a, scopeOf(*owner))
			it.Head.Inbox = *owner
			// For lists (VUL-02-004), without values that are too long.
			own := it.Attributes.With(store.Attributes{"type": a.Type, "actor": a.Actor, "signed": strconv.FormatBool(a.Signed)})
			it.Attributes = in.names.Of(own, a.Type, nil, a.Body)
			got, err := in.once(ctx, a, it) // VUL-02-001
			mu.Lock()
			defer mu.Unlock()
			if total.add(&got); *owner == owners[0] {
				total.told.ID, total.told.Executed = got.Told.ID, got.Told.Executed
			}
			return err
		})
	})
	if err != nil {
		return outcome{}, err // some inboxes may still be in progress
	}
	return total, nil
}

// tell adds a conflict to the history of the activity that came first, if one of the inboxes
// has that: id becomes the id of its record there.
func (in *Inbox) tell(ctx context.Context, a *Activity, owners []string, id *semel.ID) error {
	for _, owner := range owners {
		got, err := in.inbox.Peek(ctx, in.item(a, scopeOf(owner)))
		if err != nil || got.Decision == semel.Conflict {
			*id = cmp.Or(got.Record, *id)
			return err
		}
	}
	return nil
}

// maxInboxes bounds how many inboxes one activity can go to: each is looked up, and each keeps
// the body until it is handled.
const maxInboxes = 100

// inboxes returns the local recipients of an activity. An empty name stands for the shared
// inbox alone.
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
		// Check that the inbox exists before you check whether the activity is for it.
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
	var owners []string
	for actor := range named {
		err := in.exist(ctx, actor)
		if err == nil {
			owners = append(owners, actor)
		} else if _, absent := errors.AsType[*senderError](err); !absent {
			return nil, err
		}
	}
	if len(owners) == 0 && others {
		owners = []string{""}
	}
	if len(owners) == 0 {
		return nil, notFound()
	}
	slices.Sort(owners)
	return owners, nil
}

// exist returns a senderError if there is no such actor, and another error if that is unknown.
func (in *Inbox) exist(ctx context.Context, actor string) error {
	there, err := in.opts.Exists(ctx, actor)
	if err == nil && !there {
		err = notFound()
	}
	return err
}

// item returns an activity in the form that an inbox accepts, with a scope.
func (in *Inbox) item(a *Activity, scope string) *inbox.Item[head] {
	if a.origin == "" {
		// An id without a host belongs to nobody, so it counts within its actor: otherwise
		// anybody who learns it could use it up.
		scope += " " + digestOf(a.Actor)
	}
	return &inbox.Item[head]{
		Tenant: a.Tenant, Scope: scope, Key: keyOf(a.ID), Fingerprint: a.print, Body: a.Body, ReceivedAt: in.opts.Now().UTC(),
		Head: head{ID: a.ID, Type: a.Type, Actor: a.Actor, Signed: a.Signed, Correlation: a.Correlation},
	}
}

// once accepts an item of an activity. Its decision is Execute, Replay or Conflict if the
// error is nil.
func (in *Inbox) once(ctx context.Context, a *Activity, it *inbox.Item[head]) (inbox.Result, error) {
	accept := in.inbox.Accept
	if a.foreign {
		// Anybody who could use up an id of another server would keep its activity out. So this
		// one gets an existing outcome, but is never the first.
		accept = in.inbox.Peek
	}
	res, err := accept(ctx, it)
	if a.foreign && err == nil && res.Decision == semel.Execute {
		return res, strange()
	}
	if e, ok := errors.AsType[*semel.Error](err); ok && res.Decision == semel.Throttled {
		err = &senderError{status: http.StatusTooManyRequests, name: "TooManyRequests", err: errors.New("too many activities at once"), after: e.RetryAfter}
	}
	return res, err
}

func strange() error {
	return unprocessable("the id of the activity is that of another server than its actor's")
}

// scopeAll is the scope of the record that holds the first activity under an id. No inbox's
// name can produce it.
const scopeAll = store.ActivityScope

// scopeOf returns the part of an identity that names the inbox.
func scopeOf(owner string) string {
	if owner == "" {
		return "shared"
	}
	return "actor:" + owner
}

// keyOf returns the key of an activity: its id, or the digest of one that is too long.
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

// handle passes an accepted activity to the handler.
func (in *Inbox) handle(ctx context.Context, it *inbox.Item[head]) error {
	h := &it.Head
	a := &Activity{
		Delivery: "act_" + it.ID, Tenant: it.Tenant, ID: h.ID, Type: h.Type, Actor: h.Actor, Signed: h.Signed, Inbox: h.Inbox,
		Correlation: h.Correlation, ReceivedAt: it.ReceivedAt, Body: it.Body,
	}
	err := in.opts.Handle(ctx, a)
	if err != nil {
		in.tap.Troubled(semel.Troubled{Door: Name, Err: err, Line: line(slog.LevelError, "activity not handled", append(a.Attrs(), slog.Any("error", err)))})
	}
	return err
}

// Work handles an accepted activity: payload is the content of a message to
// [Inbox.Destination]. It returns nil once the activity is handled. Park the message if the
// error is a [*Refusal]; after any other error, call Work again.
func (in *Inbox) Work(ctx context.Context, payload []byte) error { return in.inbox.Work(ctx, payload) }

// Refusal is a handler's error that would come again if the handler got the activity again.
type Refusal = inbox.Refusal

// head is the stored part of an activity besides its body.
type head struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Actor       string `json:"actor,omitempty"`
	Signed      bool   `json:"signed"`
	Inbox       string `json:"inbox,omitempty"`
	Correlation string `json:"correlation,omitempty"`
}
