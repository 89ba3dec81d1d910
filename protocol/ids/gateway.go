package ids

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Caller is who delivers a command, as verified by whoever lets it in.
type Caller struct {
	// Tenant and Principal are who it is. A command of another tenant is refused,
	// and so is one of another actor, unless the registry lets the caller act for him.
	Tenant    string
	Principal string
	// Rights are what the caller may do; see [Rights] and [Binding].
	Rights []string
}

// Options configure a [Gateway].
type Options struct {
	// Registry declares the commands. Required.
	Registry *Registry
	// Bindings are the functions that it names. May be nil where it names none.
	Bindings *Bindings
	// Identify verifies who sends an HTTP request. Required for [Gateway.ServeHTTP].
	Identify func(r *http.Request) (Caller, error)
	// StatusURL is the address of the commands for those who ask for their state,
	// to which "/" and an id are added. Defaults to "/v1/commands".
	StatusURL string
	// Transport makes the connections to upstreams. Defaults to
	// [http.DefaultTransport].
	Transport http.RoundTripper
	// Served is told of every delivery that was answered, also of commands that
	// change nothing, of which nothing is recorded (IDS-VI.3). Optional; it should
	// return quickly.
	Served func(ctx context.Context, caller Caller, c *Command, r *Response)
}

// Gateway executes commands: every delivery of a command gets one outcome
// (IDS-V.1). It has no state of its own; any number of gateways may serve one store.
// Its methods may be called concurrently.
type Gateway struct {
	engine *semel.Engine
	opts   Options
	b      Bindings
}

// New makes a gateway on an engine, and registers the operations of the registry's
// commands there.
func New(engine *semel.Engine, opts Options) (*Gateway, error) {
	if engine == nil || opts.Registry == nil {
		return nil, errors.New("ids: a gateway needs an engine and a registry")
	}
	g := &Gateway{engine: engine, opts: opts}
	g.opts.StatusURL = strings.TrimSuffix(cmp.Or(opts.StatusURL, "/v1/commands"), "/")
	if opts.Bindings != nil {
		g.b = *opts.Bindings
	}
	further := g.b.Authorize
	g.b.Authorize = func(ctx context.Context, e *Entry, call semel.Call, rec semel.Record) error {
		if err := authorizeReplay(ctx, e, &rec); err != nil || further == nil {
			return err
		}
		return further(ctx, e, call, rec)
	}
	ops, err := opts.Registry.Operations(&g.b)
	if err != nil {
		return nil, err
	}
	if err := engine.Register(append(ops, messageOperation())...); err != nil {
		return nil, err
	}
	return g, nil
}

// Execute delivers a command. A response is the answer to the caller, whether the
// command was executed by this delivery, by another, or refused by its handler; an
// error means that nothing was executed: an [Error] for an envelope that is wrong, a
// [semel.Error] for everything else.
func (g *Gateway) Execute(ctx context.Context, caller Caller, c Command) (*Response, error) {
	d, err := g.opts.Registry.Derive(c)
	if wrong, ok := errors.AsType[*Error](err); ok && wrong.Reason == ReasonKey {
		return g.collide(ctx, caller, c, wrong)
	}
	if err != nil {
		return nil, err
	}
	if err := d.admit(caller); err != nil {
		return nil, err
	}
	first := &d.Command
	first.CommandID = cmp.Or(first.CommandID, "cmd_"+semelhttp.NewKey())
	first.CorrelationID = cmp.Or(first.CorrelationID, first.CommandID)
	ctx = withCaller(ctx, caller)
	r, err := g.deliver(ctx, caller, d)
	if err == nil && g.opts.Served != nil {
		g.opts.Served(ctx, caller, first, r)
	}
	return r, err
}

// deliver is the second level of deduplication, by what the command means. The first
// is that of the message which brought it.
func (g *Gateway) deliver(ctx context.Context, caller Caller, d *Derivation) (*Response, error) {
	if d.Command.Trace[TraceMessageID] != "" && d.Entry.Class != semel.ReadOnly {
		return g.deliverMessage(ctx, caller, d)
	}
	return g.execute(ctx, caller, d)
}

// execute runs the command, or finds what became of it.
func (g *Gateway) execute(ctx context.Context, caller Caller, d *Derivation) (*Response, error) {
	ans, err := g.engine.Do(ctx, d.Call(caller.Principal), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		return g.run(ctx, x, d)
	})
	return g.respond(caller, d.Entry, &d.Command, &ans, err)
}

// collide answers a delivery that came with the key of another envelope. Nothing is
// executed under a key that is not that of the content; where the key is that of a
// command, its record learns of the collision, as evidence (IDS-VIII.6).
func (g *Gateway) collide(ctx context.Context, caller Caller, c Command, wrong *Error) (*Response, error) {
	key := c.IdempotencyKey
	c.IdempotencyKey = ""
	d, err := g.opts.Registry.Derive(c)
	if err != nil {
		return nil, err
	}
	if err := d.admit(caller); err != nil {
		return nil, err
	}
	call := d.Call(caller.Principal)
	call.Key = KeyVersion + strings.TrimPrefix(key, KeyVersion)
	if _, err := g.engine.Peek(withCaller(ctx, caller), call); err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
		return nil, err
	}
	return conflict(&d.Command, wrong.Message), nil
}

// admit decides whether the caller may deliver the command at all.
func (d *Derivation) admit(caller Caller) error {
	c, e := &d.Command, d.Entry
	switch {
	case c.TenantID != caller.Tenant:
		return forbidden("the command is of another tenant")
	case c.ActorID != "" && c.ActorID != caller.Principal:
		return forbidden("the command is of another actor")
	case d.Principal != caller.Principal && !(e.Binding.Principal == BindEffectiveActor && e.MayAct(caller.Rights)):
		return forbidden("the caller may not act for " + d.PrincipalMember)
	case !e.MayExecute(caller.Rights):
		return forbidden("the caller lacks a right that the command needs")
	}
	return nil
}

func forbidden(why string) error {
	return &semel.Error{Code: semel.CodeForbidden, Message: why}
}

// authorizeReplay asks again, for every answer that is replayed, whether the caller
// may have it (IDS-XV.4).
func authorizeReplay(ctx context.Context, e *Entry, rec *semel.Record) error {
	caller, ok := callerOf(ctx)
	if !ok || rec.ID.Tenant != caller.Tenant {
		return forbidden("the record is of another caller")
	}
	if e.Binding.Principal != BindEffectiveActor || owns(&caller, rec) || e.MayAct(caller.Rights) {
		return nil
	}
	return forbidden("the caller may not act for effective_actor_id")
}

// owns reports whether a record is the caller's own.
func owns(caller *Caller, rec *semel.Record) bool {
	if rec.ID.Tenant != caller.Tenant {
		return false
	}
	if rec.ID.Principal != "" {
		return rec.ID.Principal == caller.Principal
	}
	return rec.Attributes["effective_actor_id"] == caller.Principal
}

type callerKey struct{}

func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Status is what is known of a command, by the id that its responses have as
// StatusID. Who does not own it needs the right to read it.
func (g *Gateway) Status(ctx context.Context, caller Caller, statusID string) (*Response, error) {
	rec, e, err := g.visible(ctx, caller, statusID)
	if err != nil {
		return nil, err
	}
	c := commandOf(rec)
	return g.respond(caller, e, &c, &semel.Answer{Decision: decisionOf(rec), Record: rec}, nil)
}

// Compensate undoes a command that was executed, once (IDS-XI.S4), for a caller who
// may execute the command that does it.
func (g *Gateway) Compensate(ctx context.Context, caller Caller, statusID, reason string) (*Response, error) {
	rec, e, err := g.visible(ctx, caller, statusID)
	if err != nil {
		return nil, err
	}
	s := e.shield(semel.ShieldReconcile)
	if s == nil {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the command declares no compensation"}
	}
	entity, action, _ := strings.Cut(s.Compensation, ".")
	undo, ok := g.opts.Registry.Lookup(entity, action)
	if !ok || !undo.MayExecute(caller.Rights) {
		return nil, forbidden("the caller may not execute " + s.Compensation)
	}
	after, err := g.engine.Compensate(withCaller(ctx, caller), rec.ID, caller.Principal, reason)
	if err != nil {
		return nil, err
	}
	c := commandOf(&after)
	return g.respond(caller, e, &c, &semel.Answer{Decision: semel.Replay, Record: &after}, nil)
}

// visible finds a record that the caller may know of.
func (g *Gateway) visible(ctx context.Context, caller Caller, statusID string) (*semel.Record, *Entry, error) {
	id, err := semel.DecodeID(statusID)
	entity, action, _ := strings.Cut(id.Operation, ".")
	e, ok := g.opts.Registry.Lookup(entity, action)
	if err != nil || !ok || id.Tenant != caller.Tenant {
		return nil, nil, semel.ErrNotFound
	}
	rec, err := g.engine.Lookup(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	reader := len(e.Rights.Read) > 0 && e.MayRead(caller.Rights)
	if !owns(&caller, &rec) && !reader && !e.MayAct(caller.Rights) {
		return nil, nil, semel.ErrNotFound
	}
	return &rec, e, nil
}

// decisionOf is what a duplicate would get.
func decisionOf(rec *semel.Record) semel.Decision {
	switch {
	case rec.State.Terminal():
		return semel.Replay
	case rec.Held != "":
		return semel.Held
	}
	return semel.InFlight
}

// commandOf is what a record tells of its command.
func commandOf(rec *semel.Record) Command {
	entity, action, _ := strings.Cut(rec.ID.Operation, ".")
	return Command{
		CommandID: rec.Attributes[semel.AttributeCommandID], CorrelationID: rec.Attributes["correlation_id"],
		TenantID: rec.ID.Tenant, Intent: Intent{Entity: entity, Action: action},
	}
}
