package activitypub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/store"
)

// retryAfter says when a sender should deliver again.
const retryAfter = 5 * time.Second

// receipt is the answer to an activity that was accepted, now or earlier (VUL-03-001).
type receipt struct {
	Status     int    `json:"status"`
	ActivityID string `json:"activity_id"`
	Message    string `json:"message"`
}

// refusal is the answer to a rejected request.
type refusal struct {
	Status     int     `json:"status"`
	Error      string  `json:"error"`
	Message    string  `json:"message"`
	ActivityID *string `json:"activity_id"`
	// Action is what a program does next.
	Action store.Action `json:"action"`
}

// ServeHTTP receives activities that are posted to the inbox of an actor, or to the shared one:
//
//	202  it is in the store, or was already; or it deletes an actor who is gone
//	400  it is malformed, has no id, or is for others
//	401  its signature is missing or wrong
//	403  the actor's instance is refused, the actor's key is gone, or somebody else has
//	     signed it
//	404  there is no such actor
//	405, 413, 415  it isn't posted, is too long, or isn't of a type of ActivityPub
//	422  it can't be understood, or has an id of another server
//	429, 503  it wasn't accepted now, with Retry-After
//
// The body has status and activity_id, and either message, or error and message. If the sender
// hangs up, its activity is accepted anyway.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, doc := 0, any(nil)
	door.Tell(r.Context(), in.tap, Name, r.Header, func(ctx context.Context) (e semel.Delivered, ours bool) {
		a, err := in.receive(w, r)
		a.Correlation = correlation(r, a.ID)
		if a.Correlation != "" {
			w.Header().Set("X-Correlation-ID", a.Correlation)
		}
		if errors.Is(err, body.ErrRefused) {
			return e, false
		}
		e, doc = in.answer(ctx, w.Header(), a, err)
		status = e.Status
		return e, true
	})
	if doc != nil {
		problem.WriteAs(w, status, "application/json", doc)
	}
}

// answer accepts an activity, unless err says why not. It returns the answer to the sender and
// the event about it.
func (in *Inbox) answer(ctx context.Context, header http.Header, a *Activity, err error) (semel.Delivered, any) {
	if errors.Is(err, errGone) {
		return in.event(semel.Delivered{Status: http.StatusAccepted}, a, slog.LevelInfo, err.Error()), receipt{http.StatusAccepted, a.ID, err.Error()}
	}
	var got outcome
	if err == nil {
		within, cancel := inbox.Within(ctx, in.opts.Budget)
		defer cancel()
		got, err = in.accept(within, a)
	}
	if err != nil {
		return in.refuse(header, a, err)
	}
	return in.accepted(a, got), receipt{http.StatusAccepted, a.ID, got.message()}
}

// receive reads and checks a request up to the point where its activity can be accepted. Even
// with an error it returns as much of the activity as it has read.
func (in *Inbox) receive(w http.ResponseWriter, r *http.Request) (*Activity, error) {
	a := new(Activity)
	actor, is := in.actors.inbox(r.URL.Path)
	if !is && !in.opts.shares(r.URL.Path) {
		return a, notFound()
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return a, &senderError{status: http.StatusMethodNotAllowed, name: "MethodNotAllowed", err: errors.New("activities are posted")}
	}
	if !body.IsActivity(r.Header) || r.Header.Get("Content-Encoding") != "" {
		return a, &senderError{status: http.StatusUnsupportedMediaType, name: "UnsupportedMediaType", err: errors.New(`the content type isn't application/activity+json, nor application/ld+json with the profile "https://www.w3.org/ns/activitystreams", or the body is encoded`)}
	}
	text, err := body.Read(w, r, in.opts.MaxBody)
	if errors.Is(err, body.ErrTooLong) {
		return a, &senderError{status: http.StatusRequestEntityTooLarge, name: "PayloadTooLarge", err: fmt.Errorf("the body is longer than %d bytes", in.opts.MaxBody)}
	}
	if errors.Is(err, body.ErrRefused) {
		return a, err
	}
	if err != nil {
		return a, malformed("the body broke off")
	}
	if a, err = parse(text); err != nil {
		return a, err
	}
	a.Tenant, a.Inbox = in.opts.Tenant, actor
	if err := in.sender(r, text, a); err != nil {
		return a, err
	}
	if len(in.opts.Types) > 0 && !slices.Contains(in.opts.Types, a.Type) {
		return a, unprocessable("activities of the type %s are not handled here", a.Type)
	}
	return a, nil
}

// sender finds out who sent an activity, and whether they may.
func (in *Inbox) sender(r *http.Request, body []byte, a *Activity) error {
	policy := in.opts.Policies.of(hostOf(cmp.Or(a.Actor, a.ID)))
	if policy.Refuse {
		return forbidden()
	}
	signer, err := in.opts.Verifier.VerifyActor(r, body, a.Actor)
	why, known := errors.AsType[*httpsig.Error](err)
	switch {
	case err == nil && a.Actor != "" && a.Actor != signer.Actor:
		return final(errors.New("the request is signed by another actor than that of the activity"))
	case err == nil && in.opts.Policies.of(hostOf(signer.Actor)).Refuse:
		return forbidden() // the activity names nobody
	case err == nil:
		a.Actor, a.Signed = signer.Actor, true
	case known && why.Code == httpsig.KeyUnavailable:
		return &senderError{status: http.StatusServiceUnavailable, name: "KeyUnavailable", err: why.Err}
	case known && why.Code == httpsig.KeyGone && a.leaves:
		return errGone
	case known && (why.Code == httpsig.KeyGone || why.Code == httpsig.OtherSigner):
		return final(why.Err)
	case known && why.Code == httpsig.SignatureMissing && policy.Unsigned:
	case known:
		return &senderError{status: http.StatusUnauthorized, name: "Unauthorized", err: why.Err}
	default:
		return err
	}
	origin := a.origin
	if a.Actor != "" {
		if origin, err = originOf(a.Actor); err != nil {
			return malformed("the actor isn't a full URI: %v", err)
		}
	}
	a.foreign = a.origin != "" && a.origin != origin
	a.saidBy(origin)
	return nil
}

// errGone says that an activity deletes an actor, and the actor's key is gone, too: nobody can
// prove it, and servers send such activities to everybody they know and repeat them for days.
var errGone = errors.New("nothing to do: the actor is gone")

// final refuses what another delivery can't fix. Senders repeat after 401.
func final(err error) error {
	return &senderError{status: http.StatusForbidden, name: "Forbidden", err: err}
}

func forbidden() error { return final(errors.New("activities of this actor's instance are refused")) }

func notFound() error {
	return &senderError{status: http.StatusNotFound, name: "NotFound", err: errors.New("there is no such actor")}
}

// maxCorrelation is the longest request id that the inbox uses, in bytes.
const maxCorrelation = 128

// correlation returns the sender's id for a request, or the id of its activity.
func correlation(r *http.Request, id string) string {
	for _, name := range []string{"X-Correlation-ID", "X-Request-ID"} {
		if v := r.Header.Get(name); v != "" && len(v) <= maxCorrelation && visible(v) {
			return v
		}
	}
	if visible(id) {
		return id
	}
	return ""
}

// visible reports whether a value can appear unchanged in an answer's header.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// refuse returns the answer to a request that was rejected, or that has no known outcome.
func (in *Inbox) refuse(header http.Header, a *Activity, err error) (semel.Delivered, any) {
	doc := refusal{Status: http.StatusServiceUnavailable, Error: "Unavailable", Message: "The activity wasn't accepted, or nobody knows whether it was: deliver it again."}
	// A budget that ran out means that there is much to do, here or for whoever holds the activity.
	trouble, wait := err != context.DeadlineExceeded && !errors.Is(err, semel.ErrInFlight), retryAfter
	if f, ok := errors.AsType[*senderError](err); ok {
		doc.Status, doc.Error, doc.Message = f.status, f.name, problem.Sentence(f.err.Error())
		trouble = false
		door.SetEffect(header, door.EffectNone) // the error is about the request
		wait = cmp.Or(f.after, retryAfter)
	}
	if doc.Status == http.StatusTooManyRequests || doc.Status == http.StatusServiceUnavailable {
		problem.RetryAfter(header, wait)
	}
	if a.ID != "" {
		doc.ActivityID = &a.ID
	}
	e, level := semel.Delivered{Code: semel.Code(doc.Error), Status: doc.Status, Err: err}, slog.LevelWarn
	doc.Action = door.ActionOf(e.Code, doc.Status)
	if trouble {
		level = slog.LevelError
		in.tap.Troubled(semel.Troubled{Door: Name, Err: err}) // its line is the answer's
	}
	return in.event(e, a, level, "activity refused"), doc
}

// event fills in the event of an answer, with its log line's level and a note.
func (in *Inbox) event(e semel.Delivered, a *Activity, level slog.Level, note string, attrs ...slog.Attr) semel.Delivered {
	e.ID.Tenant, e.ID.Operation, e.Request = in.opts.Tenant, in.Destination(), a.Correlation
	e.Line = line(level, note, append(a.Attrs(), attrs...))
	return e
}

func line(level slog.Level, message string, attrs []slog.Attr) semel.Line {
	return semel.Line{Level: level, Note: message, Attrs: append([]slog.Attr{slog.String("component", "activitypub")}, attrs...)}
}

// accepted returns the event of an activity that was accepted, now or earlier (VUL-03-003).
func (in *Inbox) accepted(a *Activity, got outcome) semel.Delivered {
	level := slog.LevelInfo
	attrs := []slog.Attr{slog.Int("inboxes", got.inboxes), slog.Int("new", got.fresh)}
	if got.fresh == 0 || got.conflicts > 0 {
		level = slog.LevelWarn
	}
	if got.conflicts > 0 {
		attrs = append(attrs, slog.String("digest", a.print.String()), slog.String("first_digest", got.first))
	}
	return in.event(got.event(), a, level, got.message(), attrs...)
}

// Attrs returns the fields of log lines about an activity.
func (a *Activity) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("activity_id", a.ID), slog.String("actor_id", a.Actor), slog.String("type", a.Type),
		slog.String("inbox", a.Inbox), slog.String("correlation_id", a.Correlation),
	}
}
