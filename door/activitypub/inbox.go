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

// Handler handles an accepted activity. After an error it gets the activity again, unless the
// error is a [*Refusal]. Look at the current state before you change it (VUL-04-002): after a
// crash the handler gets an activity that it has already handled.
type Handler func(ctx context.Context, a *Activity) error

// Verifier says who signed a request, after its body was read. It returns the errors of
// [httpsig.Verifier].
type Verifier interface {
	// VerifyActor returns who signed the request, for an activity of an actor; empty if the
	// activity names none. The body is complete.
	VerifyActor(r *http.Request, body []byte, actor string) (httpsig.Signer, error)
}

// Defaults and bounds of [Options].
const (
	// DefaultMaxBody is the longest activity, in bytes.
	DefaultMaxBody = 1_000_000
	// MaxBody is the highest Options.MaxBody: an activity stays in the outbox of its record
	// until it is handled, with a line about its origin.
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

// Principal is the principal that accepts activities. Nobody else may use it there, because its
// records decide which activities are handled.
const Principal = "activitypub" // [store.ActivityPrincipal]

// OperationPrefix begins the names of the operations that accept activities, and of the
// destinations of accepted ones; the name of the inbox follows.
const OperationPrefix = "activitypub."

// Options configure an [Inbox].
type Options struct {
	// Name is the name of the inbox. Activities in two inboxes are never the same. Defaults to
	// "inbox".
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
	// Exists reports whether an actor exists. An error means that this is unknown. Required.
	Exists func(ctx context.Context, actor string) (bool, error)
	// Verifier says who signed a request. Required, unless unsigned requests are accepted from
	// all instances.
	Verifier Verifier
	// Policies say which activities to accept from which instances.
	Policies Policies
	// Types are the accepted types of activities; others get 422. Empty for any.
	Types []string
	// Handle handles an activity. Required.
	Handle Handler
	// Window defaults to [DefaultWindow], from [MinWindow] on. Remember is as in [semel.Operation].
	Window, Remember time.Duration
	// Budget is how long a sender waits after its signature is verified. Then it gets 503;
	// calls that have begun continue, and the next delivery finds their outcome. Defaults to
	// [DefaultBudget]. Give a slow store more time: every 503 costs another delivery.
	Budget time.Duration
	// MaxBody defaults to [DefaultMaxBody], in bytes.
	MaxBody int64
	// Evidence is how much goes to the evidence log. Defaults to [semel.EvidenceNone]. With
	// [semel.EvidenceDecisions] the log has every delivery, and both contents' digests in a
	// conflict.
	Evidence semel.EvidenceLevel
	// Attributes are kept with records, by name, to find them: json:/POINTER of the activity.
	Attributes map[string]string
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

// Name marks the records of activities; see [semel.Call].Door.
const Name = "activitypub"

// Inbox serves the inboxes of a server's actors. It has no state of its own: any number of
// them, on any number of nodes, may serve one store. Its methods may be called concurrently.
//
// The engine's Events get every request in Answered, with a line for a log: at INFO, or as a
// warning for duplicates and refused requests. Troubled gets an error for each activity that
// could not be accepted or handled.
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

// unsigned is a verifier that takes nothing as signed.
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
		Name: in.Destination(), Door: Name, Principal: Principal, Window: opts.Window, Remember: opts.Remember, Budget: opts.Budget,
		Evidence: opts.Evidence, Handle: in.handle,
	})
	return in, err
}

// Destination is the name of the inbox's operation, and the outbox destination of its
// activities.
func (in *Inbox) Destination() string { return OperationPrefix + in.opts.Name }

// Serves reports whether a path belongs to an inbox, of any actor.
func (in *Inbox) Serves(path string) bool {
	_, is := in.actors.inbox(path)
	return is || in.opts.shares(path)
}
