package semelproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// UpstreamEffect is the ledger's name for the call to the upstream.
const UpstreamEffect = "semelproxy.upstream"

// execute is the guarded handler: it calls the upstream under an attempt.
// Requests that the guard lets through without one are passed.
func (p *Proxy) execute(w http.ResponseWriter, r *http.Request) {
	a, ok := semelhttp.Attempt(r.Context())
	if !ok {
		p.pass(w, r, "")
		return
	}
	if p.ledger {
		// A crash before this write leaves an attempt without an effect, which
		// the operation may let run again. A crash after it leaves a started
		// effect: the record is held until it is settled.
		ef, err := a.StartEffect(r.Context(), UpstreamEffect)
		if err != nil || ef.State != store.EffectStarted {
			p.notStarted(r.Context(), err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), effectKey{}, ef.Key))
	}
	// A forwarded request ends with the time of the route, and not when the lease is lost:
	// nobody can call it back, so giving up would only lose the answer, which the holder
	// may still record.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	timer := time.AfterFunc(p.timeout, func() { cancel(errLate) })
	defer timer.Stop()
	defer context.AfterFunc(p.running, func() { cancel(nil) })()
	// Where there is no server, ReverseProxy says nothing of an answer that broke off.
	r = r.WithContext(context.WithValue(ctx, http.ServerContextKey, p))
	out := &answer{ResponseWriter: w, clock: clock{timer, p.timeout}}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		p.unknown(r.Context(), "the upstream's answer broke off")
	}()
	p.reverse.ServeHTTP(out, r)
	dropWords(w.Header())
	if p.ledger && !out.failed && semelhttp.RunsAgain(r.Context()) {
		p.refute(r.Context(), a)
	}
}

type effectKey struct{}

// refute records in the ledger that the effect may be started again. If that can't
// be recorded, the next attempt finds it started and is held.
func (p *Proxy) refute(ctx context.Context, a *semel.Attempt) {
	err := a.SettleEffect(context.WithoutCancel(ctx), store.EffectFinding{Name: UpstreamEffect, State: store.EffectRefuted})
	if err != nil {
		p.reportError(err)
	}
}

// notStarted ends an attempt that could not start its effect. Nothing was sent.
func (p *Proxy) notStarted(ctx context.Context, err error) {
	if err == nil || errors.Is(err, &semel.Error{Code: semel.CodeEffectUnknown}) {
		semelhttp.Held(ctx, "an earlier attempt has called the upstream, and its answer is not known", semelhttp.RefusalOf(semel.CodeHeld,
			"The request was sent on before, and the answer is not known. It will not be sent again until that is settled."))
		return
	}
	p.reportError(err)
	semelhttp.Refuted(ctx, "the upstream call could not be recorded before it was made", semelhttp.RefusalOf(semel.CodeStoreUnavailable,
		"The execution of this request could not be recorded before it began. Nothing was executed. Send the same request again later."))
}

// errLate is the cause when a request is given up.
var errLate = errors.New("semelproxy: the upstream did not answer in time")

// pass forwards a request unguarded, and adds the reason, if there is one, to the answer.
// It ends when the client goes away.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, reason string) {
	out := &passing{ResponseWriter: w, reason: reason}
	out.mark() // for answers that aren't the upstream's
	defer func() { dropWords(w.Header()) }()
	if isUpgrade(r) || KindSSE.is(r) || KindGRPC.is(r) {
		p.reverse.ServeHTTP(out, r) // its answer may begin at any time
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out.clock = &silence{limit: p.timeout, timer: time.AfterFunc(p.timeout, func() { cancel(errLate) })}
	defer out.clock.stop()
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &arriving{ReadCloser: r.Body, clock: out.clock, in: r}
	}
	p.reverse.ServeHTTP(out, r)
}

// words are Semel's own headers. An upstream can't speak for it.
var words = append([]string{judge.EffectHeader}, semelhttp.Marks()...)

// dropWords removes them from the headers and trailers of an answer that is passed on. An
// upstream's word about its effect is for Semel, and isn't believed in a trailer, because the
// answer may have left.
func dropWords(h http.Header) {
	for _, name := range words {
		delete(h, name)
		delete(h, http.TrailerPrefix+name)
	}
}

// received removes Semel's own marks from an upstream's answer, before the guard or this
// proxy set them. Its word about its effect stays, for the guard to judge.
func received(resp *http.Response) error {
	for _, name := range semelhttp.Marks() {
		resp.Header.Del(name)
	}
	return nil
}

// rewrite makes the upstream's request from the client's. Headers that only
// belong to the client's connection are gone by now.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	p.strip(out.Header)
	if p.opts.OwnCredential != nil && p.opts.OwnCredential(out.Context()) {
		delete(out.Header, "Authorization")
	}
	delete(out.Header, "Expect") // a guarded body has arrived already
	if body, ok := pr.In.Body.(*arriving); ok && out.Trailer != nil {
		p.strip(out.Trailer)
		body.trailer = out.Trailer
	}
	if _, guarded := semelhttp.Attempt(out.Context()); guarded && out.Body != nil {
		out.Trailer = nil // not part of what two deliveries are compared by
		holdBody(out, pr.In)
	}
	// ReverseProxy leaves out pairs that it can't parse. The upstream decides about them.
	out.URL.RawQuery = pr.In.URL.RawQuery
	pr.SetURL(p.opts.Upstream)
	if p.opts.preserves() {
		out.Host = pr.In.Host
	}
	p.forward(pr)
	if p.opts.Identity != nil && (p.opts.TenantHeader != "" || p.opts.PrincipalHeader != "") {
		if tenant, principal, err := p.opts.Identity(pr.In); err == nil {
			setHeader(out.Header, p.opts.TenantHeader, tenant)
			setHeader(out.Header, p.opts.PrincipalHeader, principal)
		}
	}
	setHeader(out.Header, "Traceparent", p.guard.Engine().Internal().Trace(out.Context()))
	if key, ok := out.Context().Value(effectKey{}).(string); ok {
		setHeader(out.Header, p.opts.EffectHeader, key)
	}
}

// holdBody replaces the body, which the guard has read already, by a copy in memory if the
// guard has it there, so that net/http sends it in one packet with the head. A body that is
// in a file is read from there. Either can be read again for another connection.
func holdBody(out, in *http.Request) {
	kept := in.Body.(interface {
		Copy() ([]byte, bool)
		Rewind()
	})
	body, inMemory := kept.Copy()
	if !inMemory {
		out.GetBody = func() (io.ReadCloser, error) {
			kept.Rewind()
			return io.NopCloser(in.Body), nil
		}
		return
	}
	out.ContentLength, out.TransferEncoding = int64(len(body)), nil
	if len(body) == 0 {
		out.Body, out.GetBody = nil, nil // as if the client had said so
		return
	}
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody() // doesn't fail
}

func setHeader(h http.Header, name, value string) {
	if name != "" && value != "" {
		h.Set(name, value)
	}
}

// failed is called if there is no answer from the upstream.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if sendFailed(ctx, err) {
		return
	}
	if !errors.Is(err, errLate) {
		err = safehttp.Quiet(err) // without text from the answer, for logs
	}
	p.reportError(err)
	ans, guarded := w.(*answer)
	nothing := judge.NoAnswer(err).Verdict == judge.Aborted
	switch {
	case guarded && nothing:
		ans.failed = true
		if a, ok := semelhttp.Attempt(ctx); ok && p.ledger {
			p.refute(ctx, a)
		}
		semelhttp.Refuted(ctx, "there was no connection to the upstream, or it refused the stream", unreachable())
	case guarded:
		ans.failed = true
		p.unknown(ctx, "the upstream did not answer")
	case nothing:
		p.refuse(w, r, unreachable())
	default:
		p.refuse(w, r, unanswered(ctx, "The service behind this one did not answer. Whether it has done something is not known."))
	}
}

// unknown ends an attempt after something may have been sent.
func (p *Proxy) unknown(ctx context.Context, why string) {
	semelhttp.Silent(ctx, why, unanswered(ctx,
		"The request was sent on, and no whole answer came back, so its outcome is not known. It is not sent again by itself. Ask for the state of the call, or send the same request again to get the outcome once that is settled."))
}

func unreachable() semelhttp.Refusal {
	return semelhttp.RefusalOf(door.CodeUnreachable, "There was no connection to the service behind this one, or it refused to take the request. Nothing was executed. Send the same request again later.")
}

func unanswered(ctx context.Context, detail string) semelhttp.Refusal {
	f := semelhttp.Refusal{Status: http.StatusBadGateway, Code: semel.CodeUnknown, Title: "No answer", Detail: detail}
	if errors.Is(context.Cause(ctx), errLate) {
		f.Status, f.Title = http.StatusGatewayTimeout, "No answer in time"
	}
	return f
}

// reportError tells of an upstream call that failed.
func (p *Proxy) reportError(err error) {
	p.guard.Engine().Internal().Troubled(door.Trouble(Name, err, slog.LevelWarn, "upstream failed", p.opts.Attrs...))
}
