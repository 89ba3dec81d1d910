package activitypub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/extract"
)

// Handler handles an activity that was accepted. After an error it gets the activity
// again, unless the error is a [*Refusal]. Look at the state of things before you change
// them (VUL-04-002): after a crash the handler gets an activity that it has handled.
type Handler func(ctx context.Context, a *Activity) error

// Verifier tells who signed a request, after its body was read. It returns the errors of
// [httpsig.Verifier].
type Verifier interface {
	// VerifyActor returns who signed it, for an activity of an actor; empty if the
	// activity names none. The body is whole.
	VerifyActor(r *http.Request, body []byte, actor string) (httpsig.Signer, error)
}

// Defaults and bounds of [Options].
const (
	// DefaultMaxBody is the longest activity, in bytes.
	DefaultMaxBody = 1_000_000
	// MaxBody is the highest Options.MaxBody: an activity stays in the outbox of its
	// record until it is handled, with a line that says where it is from.
	MaxBody = semel.MaxOutbox - 16<<10
	// DefaultWindow is how long an activity is recognised. The longest known schedule of
	// retries, Mastodon's, takes about two days.
	DefaultWindow = 7 * 24 * time.Hour
	// MinWindow is the shortest Options.Window.
	MinWindow = 48 * time.Hour
	// DefaultBudget is how long a sender waits for an activity to be accepted, or to be
	// recognised as a duplicate (VUL-03-002).
	DefaultBudget = 100 * time.Millisecond
)

// Principal is who accepts activities. Nobody else may have it where they are accepted,
// because its records decide which are handled.
const Principal = "activitypub" // [store.ActivityPrincipal]

// OperationPrefix begins the names of the operations that accept activities, and of the
// destinations of accepted ones; the name of the inbox follows.
const OperationPrefix = "activitypub."

// Options configure an [Inbox].
type Options struct {
	// Name of the inbox. Activities of two are never the same. Defaults to "inbox".
	Name string
	// Tenant owns the activities.
	Tenant string
	// Actors is the URL of an actor, with {actor} for its name, such as
	// https://social.example/actors/{actor}. Its inbox is below it, at /inbox/.
	// Required.
	Actors string
	// Shared is the path of the inbox that all actors share, such as /inbox. Empty for
	// none.
	Shared string
	// Exists tells whether there is an actor. An error means that nobody knows.
	// Required.
	Exists func(ctx context.Context, actor string) (bool, error)
	// Verifier tells who signed a request. Required, unless unsigned requests of all
	// instances are accepted.
	Verifier Verifier
	// Policies say which activities to accept from which instances.
	Policies Policies
	// Types are the types of activities that are handled; others get 422. Empty for
	// any.
	Types []string
	// Handle handles an activity. Required.
	Handle Handler
	// Window defaults to [DefaultWindow], and is at least [MinWindow].
	Window time.Duration
	// Budget is how long a sender waits after its signature is verified. Then it is
	// answered with 503; what has begun continues, and the next delivery finds its
	// outcome. Defaults to [DefaultBudget]. Give a slow store more: every 503 costs
	// another delivery.
	Budget time.Duration
	// MaxBody defaults to [DefaultMaxBody], in bytes.
	MaxBody int64
	// Evidence is how much goes to the evidence log. Defaults to [semel.EvidenceNone].
	// With [semel.EvidenceDecisions] it has every delivery, and the digests of both
	// contents in a conflict.
	Evidence semel.EvidenceLevel
	// Attributes are kept with records, by name, to find them: json:/POINTER of the activity.
	Attributes map[string]string
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

// Name marks the records of activities; see [semel.Call].Door.
const Name = "activitypub"

// Inbox serves the inboxes of a server's actors. It has no state of its own: any number of
// them, on any number of nodes, may serve one store. Its methods may be called
// concurrently.
//
// The engine's Events get every request by Answered, with a line for a log: at INFO, and
// duplicates and refused requests as warnings. Troubled gets an error for each activity
// that could not be accepted, or not be handled.
type Inbox struct {
	inbox  *inbox.Inbox[head]
	tap    semel.Internal
	opts   Options
	actors *template
	names  *extract.Names
}

var inboxName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (opts Options) withDefaults() Options {
	opts.Name = cmp.Or(opts.Name, "inbox")
	opts.Window = cmp.Or(opts.Window, DefaultWindow)
	opts.Budget = cmp.Or(opts.Budget, DefaultBudget)
	opts.MaxBody = cmp.Or(opts.MaxBody, DefaultMaxBody)
	opts.Evidence = cmp.Or(opts.Evidence, semel.EvidenceNone)
	if opts.Verifier == nil {
		opts.Verifier = unsigned{}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return opts
}

// unsigned is a verifier for which nothing is signed.
type unsigned struct{}

// VerifyActor finds no signature.
func (unsigned) VerifyActor(*http.Request, []byte, string) (httpsig.Signer, error) {
	return httpsig.Signer{}, &httpsig.Error{Code: httpsig.SignatureMissing, Err: errors.New("the request isn't signed")}
}

// Validate reports all problems with the options.
func (opts Options) Validate() error {
	verified := opts.Verifier != nil
	opts = opts.withDefaults()
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("activitypub: "+format, args...))
		}
	}
	actors, err := newTemplate(opts.Actors)
	need(err == nil, "Actors %q: %v", opts.Actors, err)
	need(inboxName.MatchString(opts.Name), "Name %q is not small letters, digits and -", opts.Name)
	need(opts.Shared == "" || strings.HasPrefix(opts.Shared, "/") && opts.Shared == cleanPath(opts.Shared), "Shared %q is not the path of a URL", opts.Shared)
	if actors != nil && opts.Shared != "" {
		_, is := actors.inbox(opts.Shared)
		need(!is, "Shared %q is the inbox of an actor", opts.Shared)
	}
	need(opts.Exists != nil, "Exists is missing")
	need(opts.Handle != nil, "Handle is missing")
	need(opts.Window >= MinWindow, "Window %v is shorter than senders repeat their deliveries: %v", opts.Window, MinWindow)
	need(opts.Budget > 0, "Budget is negative")
	need(opts.MaxBody > 0 && opts.MaxBody <= MaxBody, "MaxBody %d is not between 1 and %d", opts.MaxBody, MaxBody)
	for i, p := range opts.Policies {
		need(p.valid(), "Policies[%d]: %q is not a host, *.host or *, in small letters", i, p.Host)
	}
	_, err = extract.NewNames(Name, opts.Attributes)
	need(err == nil, "%w", err)
	need(verified || opts.Policies.of("").Unsigned, "Verifier is missing, and unsigned activities are not accepted from everybody")
	return errors.Join(errs...)
}

// New makes an inbox and registers its operation. The error reports all problems with the
// options. You need a dispatcher that passes the messages of [Inbox.Destination] to
// [Inbox.Work].
func New(engine *semel.Engine, opts Options) (*Inbox, error) {
	if engine == nil {
		return nil, errors.New("activitypub: an engine is missing")
	}
	err := opts.Validate()
	if err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	in := &Inbox{tap: engine.Internal(), opts: opts}
	in.actors, _ = newTemplate(opts.Actors) // they were checked
	in.names, _ = extract.NewNames(Name, opts.Attributes)
	in.inbox, err = inbox.New(engine, inbox.Options[head]{
		Name: in.Destination(), Door: Name, Principal: Principal, Window: opts.Window, Budget: opts.Budget,
		Evidence: opts.Evidence, Handle: in.handle,
	})
	return in, err
}

// Destination is the name of the inbox's operation, and of the destination of its
// activities in the outbox.
func (in *Inbox) Destination() string { return OperationPrefix + in.opts.Name }

// Serves reports whether a path is that of an inbox, of whichever actor.
func (in *Inbox) Serves(path string) bool {
	_, is := in.actors.inbox(path)
	return is || in.opts.shares(path)
}
