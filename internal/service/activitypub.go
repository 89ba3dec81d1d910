package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
)

// inboxDoor takes activities, which their senders sign. No page in a browser can do that.
func (s *Server) inboxDoor(g *generation, a *config.ActivityPub) (d doorway, err error) {
	opts := a.Options()
	if opts.Handle, err = s.activityUpstream(a, s.log); err != nil {
		return d, err
	}
	if opts.Verifier, err = verifier(a, g.cfg.Listen.Trusted(), nil); err != nil {
		return d, at("signatures", err)
	}
	in, err := activitypub.New(s.engine, opts)
	if err != nil {
		return d, err
	}
	for _, one := range a.Instances {
		if one.Unsigned == "allow" {
			s.log.Warn("an instance may send activities without a signature", slog.String("inbox", a.Name), slog.String("instance", one.Host))
		}
	}
	name := in.Destination()
	explain := func(r *http.Request, body []byte, found *api.Explained) error {
		v, err := verifier(a, nil, fetchesNothing{})
		if err != nil {
			return err
		}
		opts := a.Options()
		opts.Verifier = v
		x, err := opts.Explain(r, body)
		found.Operation, found.Key, found.Details = name, x.Key, &x
		return err
	}
	return doorway{Handler: in, name: activitypub.Name, upstream: a.Upstream, serves: in.Serves, explain: explain, accepts: &accepted{
		destination: name, operations: []string{name}, principal: activitypub.Principal, work: in.Work,
		limits: dispatch.Destination{Timeout: time.Duration(a.Timeout) + acceptedExtra, Lease: time.Duration(a.Lease)},
	}}, nil
}

// verifier verifies the signatures of activities. A transport replaces the one that fetches keys.
func verifier(a *config.ActivityPub, proxies []netip.Prefix, transport http.RoundTripper) (*httpsig.Verifier, error) {
	base, err := a.Base()
	if err != nil {
		return nil, err
	}
	key, err := a.Signatures.Key()
	if err != nil {
		return nil, err
	}
	keys := httpsig.KeysOptions{AllowPrivate: a.Signatures.AllowPrivate, Allow: a.Policies().Accepts, Transport: transport}
	if key != nil {
		keys.Sign = func(r *http.Request) error {
			return httpsig.Sign(r, nil, httpsig.SignOptions{KeyID: a.Signatures.KeyID, Key: key, Form: httpsig.FormCavage})
		}
	}
	return httpsig.New(httpsig.Options{
		Keys: httpsig.NewKeys(keys), MaxAge: time.Duration(a.Signatures.MaxAge), Base: base,
		Sender: func(r *http.Request) string { return senderBehind(r, proxies) },
	})
}

// senderBehind is the address of who sent a request: that of the connection, or the last
// one in X-Forwarded-For that isn't a proxy's. It is empty if there is none.
func senderBehind(r *http.Request, proxies []netip.Prefix) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := at.Addr().Unmap()
	proxy := func(addr netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(n netip.Prefix) bool { return n.Contains(addr) })
	}
	if !proxy(addr) {
		if addr.IsLoopback() {
			return "" // a proxy that nobody named
		}
		return network.Of(addr).String()
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			return ""
		}
		if addr = addr.Unmap(); !proxy(addr) {
			return network.Of(addr).String()
		}
	}
	return ""
}

type fetchesNothing struct{}

func (fetchesNothing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nothing is fetched")
}

func (s *Server) activityUpstream(a *config.ActivityPub, log *slog.Logger) (activitypub.Handler, error) {
	up, err := s.newUpstream(dispatch.HTTPOptions{URL: a.Upstream}, a.UpstreamSecretFiles, a.Timeout)
	if err != nil {
		return nil, err
	}
	operation := activitypub.OperationPrefix + a.Name
	log = log.With(slog.String("component", "activitypub"))
	return func(ctx context.Context, a *activitypub.Activity) error {
		log.LogAttrs(ctx, slog.LevelDebug, "handling activity", a.Attrs()...)
		m := &semel.Message{ID: a.Delivery, ContentType: "application/activity+json", Payload: a.Body}
		return up.post(ctx, semel.ID{Tenant: a.Tenant, Operation: operation}, m, activityHeader(a))
	}, nil
}

// activityHeader is what an upstream learns of an activity beside its body.
func activityHeader(a *activitypub.Activity) http.Header {
	h := http.Header{}
	encoded(h,
		"Semel-Activity-Id", a.ID, "Semel-Activity-Type", a.Type, "Semel-Activity-Actor", a.Actor,
		"Semel-Activity-Signed", strconv.FormatBool(a.Signed), "Semel-Activity-Inbox", a.Inbox,
		"Semel-Correlation-Id", a.Correlation,
	)
	return h
}
