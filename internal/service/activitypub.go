package service

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/semelhq/semel/internal/service/config"
)

// inboxDoors are the inboxes of a configuration. Their callers prove by a signature who
// they are, which no page in a browser can.
func (s *Server) inboxDoors(_ *generation, cfg *config.Config) (doors []doorway, err error) {
	for i := range cfg.ActivityPub {
		a := &cfg.ActivityPub[i]
		opts := a.Options()
		if opts.Handle, err = s.activityUpstream(a, s.log); err != nil {
			return nil, at(fmt.Sprintf("activitypub[%d]", i), err)
		}
		if opts.Verifier, err = verifier(a, cfg.Listen.Trusted(), nil); err != nil {
			return nil, at(fmt.Sprintf("activitypub[%d].signatures", i), err)
		}
		in, err := activitypub.New(s.engine, opts)
		if err != nil {
			return nil, at(fmt.Sprintf("activitypub[%d]", i), err)
		}
		for _, one := range a.Instances {
			if one.Unsigned == "allow" {
				s.log.Warn("an instance may send activities without a signature", slog.String("inbox", a.Name), slog.String("instance", one.Host))
			}
		}
		name := in.Destination()
		doors = append(doors, doorway{Handler: in, name: activitypub.Name, serves: in.Serves, accepts: &accepted{
			destination: name, operations: []string{name}, principal: activitypub.Principal, work: in.Work,
			limits: dispatch.Destination{Timeout: time.Duration(a.Timeout) + acceptedExtra, Lease: time.Duration(a.Lease)},
		}})
	}
	return doors, nil
}

// verifier verifies the signatures of activities, which may come by way of proxies. A
// transport replaces the one that fetches keys.
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

// ExplainActivity says what an inbox of a configuration makes of a request, without
// fetching a key.
func ExplainActivity(a *config.ActivityPub, r *http.Request, body []byte) (activitypub.Explanation, error) {
	v, err := verifier(a, nil, fetchesNothing{})
	if err != nil {
		return activitypub.Explanation{}, err
	}
	opts := a.Options()
	opts.Verifier = v
	return opts.Explain(r, body)
}

// fetchesNothing is a transport without a network.
type fetchesNothing struct{}

func (fetchesNothing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nothing is fetched")
}

// activityUpstream posts activities to the upstream of an inbox.
func (s *Server) activityUpstream(a *config.ActivityPub, log *slog.Logger) (activitypub.Handler, error) {
	up, err := s.newUpstream(&a.Accepting, config.Answers{})
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
