package forrst

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/transport/safehttp"
)

// UpstreamEffect is the ledger's name for the call of an upstream.
const UpstreamEffect = "semel.forrst.upstream"

// maxUpstreamAnswer bounds what is read of an upstream's answer, in bytes.
const maxUpstreamAnswer = 64 << 20

// UpstreamOptions configures an [Upstream].
type UpstreamOptions struct {
	// URL is where requests are posted to: http or https. Required.
	URL string
	// Transport makes the connections. Defaults to [safehttp.Direct], whatever proxy
	// the environment names. It never sends a request twice.
	Transport http.RoundTripper
	// EffectHeader is the header in which the upstream gets a key that is the same in
	// all attempts at one call, if the operation declares its effects. Optional.
	EffectHeader string
	// Prepare changes the headers of a request to the upstream. They have the caller's
	// Authorization, X-Api-Key, Traceparent and Tracestate, and all of its headers that
	// begin with X-Forrst-. Optional.
	Prepare func(ctx context.Context, r *Request, header http.Header)
}

// Upstream is a service that speaks Forrst and leaves the idempotency extension to this
// one: it gets each call at most once, without the extension. What it answers is its
// word, whatever the status of HTTP is. Silence is none: if something was sent and no
// whole answer came back, the attempt is abandoned, and what happens next is up to
// Operation.OnAbandoned and the ledger. It may be used concurrently.
type Upstream struct {
	url       string
	opts      UpstreamOptions
	transport *safehttp.Transport
	running   context.Context
	stop      context.CancelFunc
}

// NewUpstream makes an upstream.
func NewUpstream(opts UpstreamOptions) (*Upstream, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("forrst: an upstream needs an http or https URL")
	}
	if opts.Transport == nil {
		opts.Transport = safehttp.Direct(nil)
	}
	up := &Upstream{url: u.String(), opts: opts, transport: &safehttp.Transport{Base: opts.Transport, Look: true}}
	up.running, up.stop = context.WithCancel(context.Background())
	return up, nil
}

// Interrupt cancels the calls that are under way. Their outcomes are unknown then.
func (u *Upstream) Interrupt() { u.stop() }

// Close closes idle connections.
func (u *Upstream) Close() {
	if t, ok := u.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// errSilent marks that something was sent and nobody knows what came of it.
var errSilent = errors.New("forrst: the upstream did not answer")

// upstreamResult is the result of an upstream with what else its answer has.
type upstreamResult struct {
	result json.RawMessage
	others []extension
}

// Run is the [Handler] of functions that the upstream has.
func (u *Upstream) Run(ctx context.Context, x semel.Execution, r *Request) (any, error) {
	body, err := r.withoutIdempotency()
	if err != nil {
		return nil, semel.Aborted(err)
	}
	header := u.header(ctx, r)
	a, _ := x.(*semel.Attempt)
	ledger := a != nil && a.Record().Policy.Ledger
	if ledger {
		// A crash before this write leaves an attempt without an effect, which may run
		// again. A crash after it leaves a started effect: the call is held until it is
		// settled.
		ef, err := a.StartEffect(ctx, UpstreamEffect)
		if err != nil {
			return nil, err
		}
		if u.opts.EffectHeader != "" {
			header.Set(u.opts.EffectHeader, ef.Key)
		}
	}
	said, err := u.send(ctx, r.ID, header, body)
	if said == nil {
		said = new(upstreamResult)
	}
	if ledger && err != nil && !errors.Is(err, errSilent) && endOf(errorsOf(err)) != final {
		// The next attempt may call again. If this can't be recorded, it finds the
		// effect started and is held.
		if serr := a.SettleEffect(ctx, store.EffectFinding{Name: UpstreamEffect, State: store.EffectRefuted}); serr != nil {
			return said, errors.Join(errSilent, err, serr)
		}
	}
	return said, err
}

// withoutIdempotency is the request as an upstream gets it.
func (r *Request) withoutIdempotency() ([]byte, error) {
	type call struct {
		Function  string          `json:"function"`
		Version   string          `json:"version,omitempty"`
		Arguments json.RawMessage `json:"arguments"`
	}
	return marshal(struct {
		Protocol   protocol        `json:"protocol"`
		ID         string          `json:"id"`
		Call       call            `json:"call"`
		Context    json.RawMessage `json:"context,omitempty"`
		Extensions []Extension     `json:"extensions,omitempty"`
	}{protocol{"forrst", ProtocolVersion}, r.ID, call{r.Function, r.Version, r.Arguments}, r.Context, r.Extensions})
}

func (u *Upstream) header(ctx context.Context, r *Request) http.Header {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	for name, values := range r.Header {
		switch name {
		case "Authorization", "X-Api-Key", "Traceparent", "Tracestate":
		default:
			if !strings.HasPrefix(name, "X-Forrst-") {
				continue
			}
		}
		header[name] = values
	}
	if u.opts.Prepare != nil {
		u.opts.Prepare(ctx, r, header)
	}
	return header
}

// send posts the request once. What is sent on ends with its time and not when the lease
// is lost: it can't be called back, so giving up would only lose the answer.
func (u *Upstream) send(ctx context.Context, id string, header http.Header, body []byte) (*upstreamResult, error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	defer context.AfterFunc(u.running, cancel)()
	req, err := http.NewRequestWithContext(call, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return nil, semel.Aborted(err)
	}
	req.Header = header
	resp, err := u.transport.RoundTrip(req)
	if safehttp.NothingSent(err) {
		return nil, semel.Aborted(fmt.Errorf("%w: %w", &Error{Code: DependencyError, Message: "There was no connection to the service behind this one. Nothing was sent to it"}, safehttp.Quiet(err)))
	}
	if err != nil {
		return nil, silent(safehttp.Quiet(err))
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxUpstreamAnswer+1))
	switch {
	case err != nil:
		return nil, silent(safehttp.Quiet(err))
	case len(said) > maxUpstreamAnswer:
		return nil, silent(errors.New("its answer is too large"))
	}
	return readUpstream(id, resp.StatusCode, said)
}

func silent(err error) error {
	return fmt.Errorf("%w: %w: %w", errSilent, &Error{
		Code: DependencyError, Message: "The request was sent on, and no whole answer came back, so its outcome is not known",
	}, err)
}

// readUpstream reads an answer.
func readUpstream(id string, status int, body []byte) (*upstreamResult, error) {
	m, ok := members(body)
	if string(m["errors"]) == "null" {
		delete(m, "errors")
	}
	echoed, named := text(m["id"])
	if _, errs := m["errors"]; !ok || m["protocol"] == nil || !errs && m["result"] == nil || named && echoed != id || !named && !errs {
		if status == http.StatusServiceUnavailable || status >= 400 && status < 500 {
			// Somebody in front of the function has refused it.
			return nil, semel.Aborted(&Error{Code: DependencyError, Message: fmt.Sprintf("The service behind this one refused the request with status %d", status)})
		}
		return nil, silent(fmt.Errorf("its answer with status %d is not one of Forrst to this request", status))
	}
	out := &upstreamResult{result: m["result"]}
	var extensions []struct {
		URN  string          `json:"urn"`
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(m["extensions"], &extensions) == nil {
		for _, x := range extensions {
			if shortName(x.URN) != "idempotency" {
				out.others = append(out.others, extension{x.URN, x.Data})
			}
		}
	}
	if m["errors"] == nil {
		return out, nil
	}
	var errs []struct {
		Code    Code            `json:"code"`
		Message string          `json:"message"`
		Source  *Source         `json:"source"`
		Details json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(m["errors"], &errs); err != nil || len(errs) == 0 {
		return nil, silent(errors.New("its answer has errors that are none"))
	}
	list := make(Errors, len(errs))
	for i, e := range errs {
		list[i] = &Error{Code: cmp.Or(e.Code, DependencyError), Message: e.Message, Source: e.Source, Status: status}
		if e.Details != nil {
			list[i].Details = e.Details
		}
	}
	return out, list
}
