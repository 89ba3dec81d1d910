package semelproxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/store"
)

// NewSender makes the proxy of a gateway that guards requests by a door of its own, and sends them with
// [Proxy.Send] or lets them pass. They go to the host of Upstream, by the path that they have then.
func NewSender(callers *semelhttp.Guard, opts Options) (*Proxy, error) {
	host := *opts.Upstream
	host.Path, host.RawPath = "", "" // an endpoint has no slash at its end
	opts.Upstream, opts.Mode = &host, ModeOff
	opts.StripHeaders = append(semelhttp.MethodOverrides(), opts.StripHeaders...)
	return New(callers, opts)
}

// ReadBody reads the body of a request, for a gateway that guards it by a door of its own. If that
// fails the code says why. Without a code, somebody in front has answered the request.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) (raw []byte, code semel.Code, err error) {
	raw, err = body.Read(w, r, most)
	switch {
	case err == nil, errors.Is(err, body.ErrRefused):
		return raw, "", err
	case errors.Is(err, body.ErrTooLong):
		code = door.CodeBodyTooLarge
	default:
		code = door.CodeBodyUnreadable
	}
	w.Header().Set("Connection", "close") // the rest of the body isn't worth reading
	return nil, code, err
}

// Unidentified is the code for an error in identifying the caller, with words if that has some. It
// adds the challenge that RFC 9110 section 11.6.1 requires with every 401.
func Unidentified(err error, header http.Header) (code semel.Code, detail string) {
	if e, ok := errors.AsType[*semel.Error](err); ok && (e.Code == semel.CodeForbidden || e.Code == semel.CodeStoreUnavailable) {
		return e.Code, ""
	}
	challenge := "Bearer"
	if why, ok := errors.AsType[*semelhttp.Refused](err); ok {
		challenge, detail = cmp.Or(why.Challenge, challenge), why.Detail
	}
	header.Set("WWW-Authenticate", challenge)
	return door.CodeUnidentified, detail
}

// InLedger sends the call of an attempt under an effect of that name, with the effect's key, and
// says how the attempt ends; a code says that nothing was sent. A call that had no effect may be
// sent again by the next attempt.
//
// A crash before the first write leaves an attempt without an effect, which may run again. A crash
// after it leaves a started effect: the call is held until it is settled. So does one before the
// write after the call.
func InLedger(a *semel.Attempt, name string, send func(key string) semel.Ending) (end semel.Ending, code semel.Code) {
	ef, err := a.StartEffect(a.Context(), name)
	switch {
	case err == nil && ef.State != store.EffectStarted, door.CodeOf(err) == semel.CodeEffectUnknown:
		return semel.Ending{Failure: store.Failure{Message: "an earlier attempt has sent the call, and its answer is not known"}}, semel.CodeHeld
	case err != nil:
		return semel.Ending{Disposition: semel.DispositionAborted, Failure: store.Failure{Message: "the call could not be recorded before it was sent"}}, semel.CodeStoreUnavailable
	}
	end = send(ef.Key)
	if end.Disposition == semel.DispositionAborted || end.Disposition == semel.DispositionFailed {
		_ = a.SettleEffect(context.WithoutCancel(a.Context()), store.EffectFinding{Name: name, State: store.EffectRefuted})
	}
	return end, ""
}
