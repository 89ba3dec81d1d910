package semelproxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
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

// execute is the guarded handler: it calls the upstream under an attempt. It passes on requests
// that the guard lets through without one.
func (p *Proxy) execute(w http.ResponseWriter, r *http.Request) {
	a, ok := semelhttp.Attempt(r.Context())
	if !ok {
		p.pass(w, r, "")
		return
	}
	if p.opts.Admit != nil {
		if why := p.opts.Admit(r, a); why != nil {
			semelhttp.Refuted(r.Context(), "refused before anything was sent: "+string(why.Code), *why)
			return
		}
	}
	call := &upstreamCall{Context: p.running, values: r.Context(), proxy: p}
	// The claim has promised a ledger or not, whatever the operation declares by now.
	if p.opts.EffectHeader != "" || a.Record().Policy.Ledger {
		// A crash before this write leaves an attempt without an effect, which the operation
		// may let run again. A crash after it leaves a started effect: the record is held until
		// it is settled.
		ef, err := a.StartEffect(r.Context(), UpstreamEffect)
		if err != nil || ef.State != store.EffectStarted {
			p.notStarted(r.Context(), err)
			return
		}
		call.effect = ef.Key
	}
	// A forwarded request ends when the route's time is over, but not when the lease is lost:
	// nobody can call it back, so giving up would only lose the answer, which the holder may
	// still record.
	ctx, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	timer := time.AfterFunc(p.timeout, func() { cancel(errLate) })
	defer timer.Stop()
	r = r.WithContext(ctx)
	out := &answer{ResponseWriter: w, timer: timer, limit: p.timeout}
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
	if call.effect != "" && !out.failed && semelhttp.RunsAgain(r.Context()) {
		p.refute(r.Context(), a)
	}
}

// errLate is the cause when a request is given up.
var errLate = errors.New("semelproxy: the upstream did not answer in time")

// pass forwards a request unguarded. It ends when the client goes away. why is the reason, and
// empty if the request needs no guard; the answer has it if the request has a key and may
// change something.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, why string) {
	out := &passing{ResponseWriter: w, limit: p.timeout}
	upgrade := isUpgrade(r)
	if why != "" { // otherwise the caller has wrapped w for the page already
		out.ResponseWriter = p.inspector.ForPage(w, r)
		if p.inspector.MayHaveKey(r) && (upgrade || !safehttp.SafeMethod(r.Method)) {
			out.reason = why
			out.Header().Set(semelhttp.UnguardedHeader, why) // for answers that don't come from the upstream
		}
	}
	defer func() { dropWords(out.Header()) }()
	if upgrade || KindSSE.is(r) || KindGRPC.is(r) {
		p.reverse.ServeHTTP(out, r) // its answer may begin at any time
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out.timer = time.AfterFunc(p.timeout, func() { cancel(errLate) })
	defer out.stop()
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &arriving{ReadCloser: r.Body, out: out, in: r}
	}
	p.reverse.ServeHTTP(out, r)
}

// received removes Semel's own marks from an upstream's answer, before the guard or this proxy
// sets them. Semel-Effect stays, for the guard to judge.
func received(resp *http.Response) error {
	for _, name := range marks {
		resp.Header.Del(name)
	}
	return nil
}

// words are Semel's own headers, and marks the ones among them that only Semel sets. An
// upstream can't speak for Semel.
var (
	marks = semelhttp.Marks()
	words = append([]string{judge.EffectHeader}, marks...)
	lasts = prefixed(http.TrailerPrefix, words)
)

// dropWords removes words from the headers and trailers of an answer that is passed on. An
// upstream's Semel-Effect is meant for Semel. It doesn't count in a trailer, because the answer
// may have left.
func dropWords(h http.Header) {
	for i, name := range words {
		delete(h, name)
		delete(h, lasts[i])
	}
}

func prefixed(prefix string, names []string) []string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = prefix + out[i]
	}
	return out
}

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

// failed is called if the upstream didn't answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	call, ok := callOf(ctx)
	if ok && call.failed != nil { // of Send
		*call.failed = safehttp.Quiet(err)
		return
	}
	if !errors.Is(err, errLate) {
		err = safehttp.Quiet(err) // without the answer's text, for logs
	}
	p.reportError(err)
	ans, guarded := w.(*answer)
	if guarded {
		ans.failed = true
	}
	switch nothing := judge.NoAnswer(err).Verdict == judge.Aborted; {
	case nothing:
		f := semelhttp.RefusalOf(door.CodeUnreachable, "There was no connection to the service behind this one, or it refused to take the request. Nothing was executed. Send the same request again later.")
		if !guarded {
			p.refuse(w, r, f)
			return
		}
		if a, ok := semelhttp.Attempt(ctx); ok && call.effect != "" {
			p.refute(ctx, a)
		}
		semelhttp.Refuted(ctx, "there was no connection to the upstream, or it refused the stream", f)
	case guarded:
		p.unknown(ctx, "the upstream did not answer")
	default:
		p.refuse(w, r, unanswered(ctx, "The service behind this one did not answer. Whether it has done something is not known."))
	}
}

// unknown ends an attempt after something may have been sent.
func (p *Proxy) unknown(ctx context.Context, why string) {
	semelhttp.Silent(ctx, why, unanswered(ctx,
		"The request was sent on, and no whole answer came back, so its outcome is not known. It is not sent again by itself. Ask for the state of the call, or send the same request again to get the outcome once that is settled."))
}

func unanswered(ctx context.Context, detail string) semelhttp.Refusal {
	f := semelhttp.Refusal{Status: http.StatusBadGateway, Code: semel.CodeUnknown, Title: "No answer", Detail: detail}
	if errors.Is(context.Cause(ctx), errLate) {
		f.Status, f.Title = http.StatusGatewayTimeout, "No answer in time"
	}
	return f
}

// reportError reports an upstream call that failed.
func (p *Proxy) reportError(err error) {
	p.tap.Troubled(door.Trouble(Name, err, slog.LevelWarn, "upstream failed", p.opts.Attrs...))
}
