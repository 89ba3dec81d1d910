package semelproxy

import (
	"context"
	"errors"
	"net/http"
)

// Pass forwards a request that needs no guard, in any mode, for a door that knows which
// requests of its protocol change nothing.
func (p *Proxy) Pass(w http.ResponseWriter, r *http.Request) {
	r, _, refused := p.judge(r, ModeOff)
	if refused != nil {
		p.refuse(w, r, *refused)
		return
	}
	p.pass(w, r, "")
}

// Send forwards a request once, for a door that guards it: the body needs GetBody, in case a
// connection turns out to be closed. The answer goes to w, head and body, as it comes. If the
// answer is incomplete, the error says why, without the other side's text; package judge says
// what it proves. The upstream gets key in Options.EffectHeader, unless one of them is
// empty.
//
// The request ends with its context, and when [Proxy.Interrupt] is called.
func (p *Proxy) Send(w http.ResponseWriter, r *http.Request, key string) (err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.running, cancel)()
	if p.running.Err() != nil {
		cancel() // AfterFunc does so in its own time
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = errBrokeOff
		default:
			panic(v)
		}
	}()
	call := &upstreamCall{Context: ctx, proxy: p, effect: key, failed: &err}
	p.reverse.ServeHTTP(w, withoutH2C(r.WithContext(call)))
	dropWords(w.Header())
	return err
}

// errBrokeOff is the error for an answer that began and didn't end.
var errBrokeOff = errors.New("semelproxy: the upstream's answer broke off")

type callKey struct{}

// upstreamCall is the context of one call of the upstream, and what the call is about.
type upstreamCall struct {
	context.Context                 // ends the call
	values          context.Context // has the request's values, if the call outlives the request
	proxy           *Proxy
	effect          string // the key for Options.EffectHeader
	failed          *error // where [Proxy.Send] wants its error
}

// Value finds the call, and the request's values. Without a server in the context, ReverseProxy
// doesn't report an answer that broke off.
func (c *upstreamCall) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case http.ServerContextKey:
		return c.proxy
	}
	v := c.Context.Value(key)
	if v == nil && c.values != nil {
		v = c.values.Value(key)
	}
	return v
}

// callOf returns the call that a context belongs to.
func callOf(ctx context.Context) (*upstreamCall, bool) {
	call, ok := ctx.Value(callKey{}).(*upstreamCall)
	return call, ok
}
