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
// what it proves. The upstream gets effectKey in Options.EffectHeader, unless one of them is
// empty.
//
// The request ends with its context, and when [Proxy.Interrupt] is called.
func (p *Proxy) Send(w http.ResponseWriter, r *http.Request, key string) (err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.running, cancel)()
	ctx = context.WithValue(ctx, sendErrorKey{}, &err)
	if key != "" {
		ctx = context.WithValue(ctx, effectKey{}, key)
	}
	// Without a server in the context, ReverseProxy doesn't report an answer that broke off.
	ctx = context.WithValue(ctx, http.ServerContextKey, p)
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if aborted, ok := v.(error); !ok || !errors.Is(aborted, http.ErrAbortHandler) {
			panic(v)
		}
		err = errBrokeOff
	}()
	p.reverse.ServeHTTP(w, withoutH2C(r.WithContext(ctx)))
	dropWords(w.Header())
	return err
}

// errBrokeOff is the error for an answer that began and didn't end.
var errBrokeOff = errors.New("semelproxy: the upstream's answer broke off")

// sendErrorKey is the context key for the error of a [Proxy.Send].
type sendErrorKey struct{}
