package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/server/config"
)

// How what doors have taken is posted. It is by age that it is parked: what waits for
// something else to happen first may need any number of tries.
const (
	takenMaxTries   = 1 << 20
	takenMaxBackoff = 5 * time.Minute
	// takenExtra is what a try may take beside its upstream: reading the state of a
	// payment, for example.
	takenExtra = 15 * time.Second
)

// upstream is the program that handles what a door takes. It gets posts by Standard
// Webhooks. Its address is the operator's, and nobody who sends to the door has a say in
// it.
type upstream struct {
	sender  dispatch.Sender
	timeout time.Duration
}

func newUpstream(url string, read func() (secrets []string, err error), timeout config.Duration) (*upstream, error) {
	secrets, err := read()
	if err != nil {
		return nil, err
	}
	sender, err := dispatch.HTTP(dispatch.HTTPOptions{URL: url, Secrets: secrets, AllowPrivate: true})
	return &upstream{sender, time.Duration(timeout)}, err
}

// post posts one thing once.
func (u *upstream) post(ctx context.Context, call semel.ID, m *semel.Message, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	return u.sender.Deliver(ctx, dispatch.Delivery{Message: m, Call: call, Header: header})
}

// encoded sets headers, whose values are encoded as in a path of a URL.
func encoded(h http.Header, namesAndValues ...string) {
	for i := 0; i < len(namesAndValues); i += 2 {
		h.Set(namesAndValues[i], url.PathEscape(namesAndValues[i+1]))
	}
}

// takenDestination is the destination of what a door has taken by an operation of the same
// name, under its own principal. After a crash in a post, another follows when the lease is
// over.
func takenDestination(name, door string, timeout, lease config.Duration, post dispatch.SenderFunc) dispatch.Destination {
	return dispatch.Destination{
		// Whoever could send such a message would choose what the upstream gets.
		Allow: func(call semel.ID) bool {
			principal, _ := call.Scope()
			return call.Operation == name && principal == door
		},
		Sender: post, Timeout: time.Duration(timeout) + takenExtra, Lease: time.Duration(lease), MaxBackoff: takenMaxBackoff, MaxTries: takenMaxTries,
	}
}

// dispatched says to a dispatcher what the error of a door's Work means.
func dispatched(err error) error {
	if refusal, ok := errors.AsType[*webhook.Refusal](err); ok {
		return dispatch.Park(string(refusal.Code), err)
	}
	if later, ok := errors.AsType[*webhook.Later](err); ok {
		return dispatch.RetryAfter(later.After, err)
	}
	return err
}
