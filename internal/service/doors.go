package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/wire"
)

// doorway is a door as the service mounts it. No route can hide one, but for one at the root.
type doorway struct {
	http.Handler
	name string // as events and records have it
	// setting is its part of the configuration, and upstream where its calls go: a URL, in which
	// the configuration accepts no password.
	setting, upstream string
	// paths are those at which it gets requests, and serves reports any others; nil: none.
	paths  []string
	serves func(path string) bool
	// last says that it is at the root: it gets every request that no other door and no route
	// gets.
	last bool
	// form says that duplicates get their results in a form of the door's own, and not as
	// answers over HTTP.
	form bool
	// declares reports whether an operation is the door's own, so that the execution API may
	// not end its calls. Nil: none is.
	declares func(operation string) bool
	// declaration is how a registry declares the command of an operation. Optional.
	declaration func(operation string) *wire.Declaration
	// accepts are the items that it accepts now and handles later; nil: none.
	accepts *accepted
	// explain says how the door would handle a request, given its body, and does nothing. Nil:
	// nobody can say without doing it.
	explain func(r *http.Request, body []byte, found *api.Explained) error
}

// openDoors makes the doors of each section of the configuration. A new kind of door adds a
// line here.
func (s *Server) openDoors(g *generation) error {
	return cmp.Or(
		s.commandDoors(g),
		open(g, "webhooks", g.cfg.Webhooks, s.webhookDoor),
		open(g, "activitypub", g.cfg.ActivityPub, s.inboxDoor),
		open(g, "forrst", g.cfg.Forrst, s.forrstDoor),
		open(g, "a2a", g.cfg.A2A, s.agentDoor),
		open(g, "mcp", g.cfg.MCP, s.toolDoor),
		s.commerceDoor(g),
	)
}

func open[C any](g *generation, section string, list []C, door func(g *generation, c *C) (doorway, error)) error {
	for i := range list {
		setting := fmt.Sprintf("%s[%d]", section, i)
		d, err := door(g, &list[i])
		if err != nil {
			return at(setting, err)
		}
		d.setting = setting
		g.doors = append(g.doors, d)
	}
	return nil
}

// below reports whether paths are below one.
func below(path string) func(string) bool {
	prefix := strings.TrimSuffix(path, "/") + "/"
	return func(path string) bool { return strings.HasPrefix(path, prefix) }
}

func (d *doorway) serving(path string) bool {
	return slices.Contains(d.paths, path) || d.serves != nil && d.serves(path)
}

// root is the door at the root; nil if none is.
func (g *generation) root() *doorway {
	if i := slices.IndexFunc(g.doors, func(d doorway) bool { return d.last }); i >= 0 {
		return &g.doors[i]
	}
	return nil
}

// door is what gets requests at a path before any route does; nil if nothing does.
func (g *generation) door(path string) *doorway {
	for i := range g.doors {
		if d := &g.doors[i]; !d.last && d.serving(path) {
			return d
		}
	}
	return nil
}

func (g *generation) doorOf(r *http.Request) string {
	if d := g.door(r.URL.Path); d != nil {
		return d.name
	} else if g.routes.find(r) != nil {
		return semelhttp.Name
	} else if d = g.root(); d != nil {
		return d.name
	}
	return api.Name
}

// passesDoor reports whether the path, which is no door's, would be one's if it were spelled as
// an upstream may read it. If the upstream of a route accepts events that the door has checked,
// it may well accept an unchecked one at such a path, without a signature.
func (g *generation) passesDoor(p string) bool {
	if len(g.doors) == 0 {
		return false
	}
	folded := fold(p)
	lower := strings.ToLower(folded)
	return slices.ContainsFunc([]string{folded, folded + "/", lower, lower + "/"}, func(spelling string) bool {
		return slices.ContainsFunc(g.doors, func(d doorway) bool {
			return !d.last && (d.serving(spelling) || slices.ContainsFunc(d.paths, func(path string) bool { return strings.EqualFold(path, spelling) }))
		})
	})
}

// accepted is what a door accepts, to be handled after its sender has been answered.
type accepted struct {
	destination string   // of its messages
	operations  []string // of the calls that send these
	principal   string   // of the calls, which no caller may have
	// work handles an item: payload is that of its message.
	work func(ctx context.Context, payload []byte) error
	// limits are for dispatch, which doesn't use Allow and Sender of it.
	limits dispatch.Destination
}

// How accepted items are handled. They are retried until they are too old, however many attempts
// that takes, and without a circuit breaker: that one can't be handled, which a stranger may have
// sent, says nothing about the next.
const (
	acceptedMaxTries   = 1 << 20
	acceptedMaxBackoff = 5 * time.Minute
	// acceptedExtra is what an attempt may take beside its upstream: reading the state of a
	// payment, for example.
	acceptedExtra = 15 * time.Second
)

// destinations deliver the items that the doors accept, each to the door in the configuration
// at that time. After a crash, another attempt follows when the lease is over.
func (s *Server) destinations(g *generation) map[string]dispatch.Destination {
	all := map[string]dispatch.Destination{}
	for i := range g.doors {
		a := g.doors[i].accepts
		if a == nil {
			continue
		}
		to := a.limits
		to.MaxBackoff, to.MaxTries, to.BreakAfter = acceptedMaxBackoff, acceptedMaxTries, -1
		// Whoever could send such a message would choose the work, and who asks for it.
		to.Allow = func(call semel.ID) bool {
			who, _ := call.Scope()
			return who == a.principal && slices.Contains(a.operations, call.Operation)
		}
		to.Sender = dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error {
			for _, now := range s.current().doors {
				if now.accepts != nil && now.accepts.destination == a.destination {
					return dispatched(now.accepts.work(ctx, d.Message.Payload))
				}
			}
			return errors.New("the door that accepted it isn't configured")
		})
		all[a.destination] = to
	}
	return all
}

// dispatched says to a dispatcher what the error of a worker means.
func dispatched(err error) error {
	if refusal, ok := errors.AsType[*inbox.Refusal](err); ok {
		return dispatch.Park(string(refusal.Code), err)
	}
	if later, ok := errors.AsType[*inbox.Later](err); ok {
		return dispatch.RetryAfter(later.After, err)
	}
	return err
}

// upstream is the program that handles what a door accepts. It gets posts by Standard
// Webhooks. Its address is the operator's; nobody who sends to the door can choose it.
type upstream struct {
	sender  dispatch.Sender
	timeout time.Duration
}

func (s *Server) newUpstream(opts dispatch.HTTPOptions, secretFiles []string, timeout config.Duration) (u *upstream, err error) {
	if opts.Secrets, err = config.ReadSecrets(secretFiles); err != nil {
		return nil, err
	}
	opts.AllowPrivate, opts.Trace = true, s.engine.Internal().Trace
	sender, err := dispatch.HTTP(opts)
	return &upstream{sender, time.Duration(timeout)}, err
}

func (u *upstream) post(ctx context.Context, call semel.ID, m *semel.Message, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	return u.sender.Deliver(ctx, dispatch.Delivery{Message: m, Call: call, Header: header})
}

// encoded sets headers, with values encoded as in a path of a URL.
func encoded(h http.Header, namesAndValues ...string) {
	for i := 0; i < len(namesAndValues); i += 2 {
		h.Set(namesAndValues[i], url.PathEscape(namesAndValues[i+1]))
	}
}
