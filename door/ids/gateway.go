package ids

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// Caller is the verified sender of a command.
type Caller struct {
	// Tenant and Principal identify the caller. Commands of another tenant are refused, and so
	// are another actor's, unless the registry lets the caller act for them.
	Tenant, Principal string
	// Rights are the caller's rights; see [Rights] and [Binding].
	Rights []string
}

// Options configure a [Gateway].
type Options struct {
	// Registry declares the commands. Required.
	Registry *Registry
	// Bindings are the functions that the registry names. May be nil if it names none.
	Bindings *Bindings
	// Identify verifies who sends an HTTP request. Required for [Gateway.ServeHTTP], which
	// otherwise lets nobody in. Callers don't see its error.
	Identify func(r *http.Request) (Caller, error)
	// Admit is called before a handler. Its error ends the command like a handler's.
	Admit func(ctx context.Context, x semel.Execution, d *Derivation) error
	// Attributes are kept with records, by name, to find them: json:/POINTER of the args.
	Attributes map[string]string
	// Remember is that of all commands; see [semel.Operation].
	Remember Duration
	// StatusURL is the address of the commands. With "/" and an id it is the address of a
	// command's state. Defaults to "/v1/commands".
	StatusURL string
	// Transport makes the connections to upstreams. By default they go directly to the
	// registry's URLs, even if the environment names a proxy.
	Transport http.RoundTripper
}

// Gateway executes commands: every delivery of a command gets one outcome (IDS-V.1). It has no
// state of its own; any number of gateways may serve one store. Its methods may be called
// concurrently.
//
// The engine's Events get every delivery in Answered, even conflicts, and commands that change
// nothing and leave no record (IDS-VI.3).
type Gateway struct {
	engine *semel.Engine
	opts   Options
	b      Bindings
	asker  asker
	names  *extract.Names
}

// New makes a gateway on an engine, and registers the operations of the registry's commands there,
// and the one for messages. An error lists everything that is wrong; then none is registered.
func New(engine *semel.Engine, opts Options) (*Gateway, error) {
	if engine == nil || opts.Registry == nil {
		return nil, errors.New("ids: a gateway needs an engine and a registry")
	}
	if opts.Transport == nil {
		opts.Transport = safehttp.Direct(nil)
	}
	if opts.Identify == nil {
		opts.Identify = func(*http.Request) (Caller, error) {
			return Caller{}, errors.New("ids: a gateway without Identify knows nobody")
		}
	}
	g := &Gateway{engine: engine, opts: opts, b: *cmp.Or(opts.Bindings, &Bindings{})}
	g.asker = asker{&safehttp.Transport{Base: opts.Transport}, engine.Internal().Trace, opts.Registry.byName}
	g.opts.StatusURL = strings.TrimSuffix(cmp.Or(opts.StatusURL, "/v1/commands"), "/")
	g.b.ask, g.b.remember = &g.asker, opts.Remember
	further := g.b.Authorize
	g.b.Authorize = func(ctx context.Context, e *Entry, call semel.Call, rec semel.Record) error {
		if err := authorizeReplay(ctx, e, &rec); err != nil || further == nil {
			return err
		}
		return further(ctx, e, call, rec)
	}
	ops, err := opts.Registry.Operations(&g.b)
	names, wrong := extract.NewNames(Name, opts.Attributes)
	if g.names = names; err != nil || wrong != nil {
		return nil, errors.Join(err, wrong)
	}
	return g, engine.Register(append(ops, messageOperation)...)
}

// Declares reports whether an operation belongs to a command.
func (g *Gateway) Declares(operation string) bool {
	return g.opts.Registry.byName[operation] != nil
}

// Declaration finds the declaration of the command that an operation belongs to.
func (g *Gateway) Declaration(operation string) (*Entry, bool) {
	e, ok := g.opts.Registry.byName[operation]
	return e, ok
}

// Execute delivers a command. A response is the answer to the caller, whether this delivery
// executed the command, another one did, or its handler refused it.
//
// An error is an [Error] for an invalid envelope, several of them joined, or a [semel.Error].
// It means that nothing was executed, except for [semel.CodeUnknown], which means that this is
// unknown. You may deliver the same envelope again after any error.
func (g *Gateway) Execute(ctx context.Context, caller Caller, c Command) (*Response, error) {
	return g.serve(ctx, nil, caller, func() (Command, error) { return c, nil })
}

// serve is Execute for a command returned by read, from a request with this header.
func (g *Gateway) serve(ctx context.Context, header http.Header, caller Caller, read func() (Command, error)) (r *Response, err error) {
	door.Tell(ctx, g.engine.Internal(), Name, header, func(ctx context.Context) (e semel.Delivered, ours bool) {
		var c Command
		if c, err = read(); err != nil {
			return refusedEvent(err), !errors.Is(err, body.ErrRefused)
		}
		var first *Command
		if first, r, err = g.answer(ctx, caller, c); err != nil {
			e = refusedEvent(err)
			e.ID, e.Decision = semel.ID{Tenant: caller.Tenant, Operation: c.Intent.Name()}, decisionBy(e.Code)
			return e, true
		}
		// For a command that changes nothing this event is the only trace.
		e = r.told
		e.Code, e.Status, e.Request = r.code(), r.httpStatus(), first.CorrelationID
		e.Attrs = []slog.Attr{{Key: "command", Value: first.LogValue()}, slog.String("command_status", string(r.Status)), slog.String("command_decision", r.Decision), slog.String("reason", r.Reason)}
		return e, true
	})
	return r, err
}

func refusedEvent(err error) semel.Delivered {
	p, _ := refusalOf(err)
	return semel.Delivered{Code: p.Code, Status: p.Status, Err: err}
}

// answer is Execute, and also returns the command as delivered, with its ids.
func (g *Gateway) answer(ctx context.Context, caller Caller, c Command) (*Command, *Response, error) {
	key := c.IdempotencyKey
	d, err := g.opts.Registry.Derive(c)
	wrong, collides := errors.AsType[*Error](err)
	if collides = collides && wrong.Reason == ReasonKey; collides {
		c.IdempotencyKey = ""
		d, err = g.opts.Registry.Derive(c)
	}
	if err == nil {
		err = d.admit(caller)
	}
	if err != nil {
		return nil, nil, err
	}
	first := &d.Command
	if first.CommandID == "" {
		first.CommandID = "cmd_" + safehttp.NewKey()
	}
	first.CorrelationID = cmp.Or(first.CorrelationID, first.CommandID)
	ctx = context.WithValue(ctx, callerKey{}, caller)
	var r *Response
	switch {
	case collides:
		r, err = g.collide(ctx, caller, d, key, wrong)
	case first.Trace[TraceMessageID] != "" && d.Entry.Class != semel.ReadOnly:
		r, err = g.deliverMessage(ctx, caller, d)
	default:
		r, err = g.execute(ctx, caller, d)
	}
	return first, r, err
}

// execute runs the command, or finds its outcome: the second level of deduplication, by the
// meaning of the command. The first is by its message.
func (g *Gateway) execute(ctx context.Context, caller Caller, d *Derivation) (*Response, error) {
	call := d.Call(caller.Principal)
	call.Attributes = g.names.Of(call.Attributes, call.Operation, nil, d.Command.Args)
	ans, err := g.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		if g.opts.Admit != nil {
			if err := g.opts.Admit(ctx, x, d); err != nil {
				return semel.Result{}, err
			}
		}
		return g.run(ctx, x, d)
	})
	return g.respond(caller, d.Entry, &d.Command, &ans, err)
}

// collide answers a delivery that came with another envelope's key. Nothing is executed under a
// key that doesn't belong to the content; if the key belongs to a command, the collision
// becomes evidence of that command's record (IDS-VIII.6).
func (g *Gateway) collide(ctx context.Context, caller Caller, d *Derivation, key string, wrong *Error) (*Response, error) {
	call := d.Call(caller.Principal)
	call.Key = KeyVersion + strings.TrimPrefix(key, KeyVersion)
	if _, err := g.engine.Internal().Peek(ctx, call); err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
		return nil, err
	}
	return conflict(&d.Command, &semel.Answer{}, wrong.Message), nil
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

func forbidden(why string) error { return &semel.Error{Code: semel.CodeForbidden, Message: why} }

// authorizeReplay asks again, for every replayed answer, whether the caller may have it
// (IDS-XV.4).
func authorizeReplay(ctx context.Context, e *Entry, rec *semel.Record) error {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	switch {
	case !ok || rec.ID.Tenant != caller.Tenant:
		return forbidden("the record is of another caller")
	case e.Binding.Principal == BindEffectiveActor && !owns(&caller, rec) && !e.MayAct(caller.Rights):
		return forbidden("the caller may not act for effective_actor_id")
	}
	return nil
}

// owns reports whether a record is the caller's own.
func owns(caller *Caller, rec *semel.Record) bool {
	return rec.ID.Tenant == caller.Tenant && cmp.Or(rec.ID.Principal, rec.Attributes["effective_actor_id"]) == caller.Principal
}

// callerKey has the [Caller] in the context of a delivery.
type callerKey struct{}

// Status returns the state of a command by the StatusID of its responses. A caller that
// doesn't own it needs the right to read it. All others, and all callers if there is no
// such command, get [semel.ErrNotFound].
func (g *Gateway) Status(ctx context.Context, caller Caller, statusID string) (*Response, error) {
	rec, e, err := g.visible(ctx, caller, statusID)
	if err != nil {
		return nil, err
	}
	decision := semel.InFlight // what a duplicate would get
	switch {
	case rec.State.Terminal():
		decision = semel.Replay
	case rec.Held:
		decision = semel.Held
	}
	r, err := g.told(caller, e, rec, decision)
	if err == nil && r.Status == StatusProcessing {
		r.Status = StatusInProgress
	}
	return r, err
}

// told returns a response about a record, without a delivery.
func (g *Gateway) told(caller Caller, e *Entry, rec *semel.Record, decision semel.Decision) (*Response, error) {
	r, err := g.respond(caller, e, &Command{}, &semel.Answer{Decision: decision, Record: rec}, nil)
	if err == nil {
		r.Decision = ""
	}
	return r, err
}

// Compensate undoes an executed command, once (IDS-XI.S4). The caller must be allowed to
// execute the compensating command, and own the command to undo, or be allowed to act for its
// owner. For anybody else's command the registry must name a right that executes the
// compensation, because a right to read a command isn't a right to undo it. The record keeps
// the reason, up to 1 KiB.
//
// [semel.CodeUnsupported] means that the command declares no compensation,
// [semel.CodeForbidden] that the caller may not compensate it. After any other error you can
// ask again: it is done at most once.
func (g *Gateway) Compensate(ctx context.Context, caller Caller, statusID, reason string) (*Response, error) {
	rec, e, err := g.visible(ctx, caller, statusID)
	if err != nil {
		return nil, err
	}
	s := e.shield(semel.ShieldReconcile)
	if s == nil {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the command declares no compensation"}
	}
	undo, ok := g.opts.Registry.byName[s.Compensation]
	theirs := owns(&caller, rec) || e.MayAct(caller.Rights)
	if !ok || !undo.MayExecute(caller.Rights) || !theirs && len(undo.Rights.Execute) == 0 {
		return nil, forbidden("the caller may not execute " + s.Compensation)
	}
	after, err := g.engine.Compensate(context.WithValue(ctx, callerKey{}, caller), rec.ID, caller.Principal, reason)
	if err != nil {
		return nil, err
	}
	return g.told(caller, e, &after, semel.Replay)
}

// visible finds a record that the caller may know about.
func (g *Gateway) visible(ctx context.Context, caller Caller, statusID string) (*semel.Record, *Entry, error) {
	id, err := store.DecodeID(statusID)
	e, ok := g.opts.Registry.byName[id.Operation]
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

// decisionBy returns the decision that refuses a delivery with a code; empty if there is none.
func decisionBy(code semel.Code) semel.Decision {
	for _, d := range semel.Decisions() {
		if by, refused := d.Code(); refused && by == code {
			return d
		}
	}
	return ""
}
