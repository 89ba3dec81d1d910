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
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// UpstreamEffect is the ledger's name for the call of an upstream.
const UpstreamEffect = "semel.forrst.upstream"

// maxUpstreamAnswer bounds an upstream's answer, in bytes.
const maxUpstreamAnswer = 64 << 20

// UpstreamOptions configures an [Upstream].
type UpstreamOptions struct {
	// URL is the address to POST requests to: http or https. Required.
	URL string
	// Transport makes the connections. Defaults to [safehttp.Direct], even if the environment
	// names a proxy. It never sends a request twice.
	Transport http.RoundTripper
	// EffectHeader is the header that gives the upstream a key that stays the same in all
	// attempts at one call, if the operation declares its effects. Optional.
	EffectHeader string
	// PassKey is the header that gives the upstream the request's key, if it has one, such as
	// Idempotency-Key. Keys are unique within caller, function and version. Optional.
	PassKey string
	// Answers say what the upstream's answers mean, in place of the table of package judge.
	// They look at HTTP's status and header, and at the body of the whole answer.
	Answers judge.Answers
	// Prepare changes the headers of a request to the upstream. They have the caller's
	// Authorization, X-Api-Key, Traceparent and Tracestate, and all of its headers that
	// begin with X-Forrst-. Optional.
	Prepare func(ctx context.Context, r *Request, header http.Header)
}

// Upstream is a service that speaks Forrst and leaves the idempotency extension to this one: it
// gets each call at most once, without the extension. An answer in Forrst's form counts,
// whatever its HTTP status; package judge says which code proves what. If something was sent
// and no complete answer came back, or one that proves nothing, such as DEADLINE_EXCEEDED, the
// attempt is abandoned, and Operation.OnAbandoned and the ledger decide what happens next. A
// financial call is then always held. You may use an Upstream concurrently.
type Upstream struct {
	url       string
	opts      UpstreamOptions
	answers   *judge.Named
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
	answers, err := opts.Answers.Parse()
	if err != nil {
		return nil, fmt.Errorf("forrst: Answers: %w", err)
	}
	if opts.Transport == nil {
		opts.Transport = safehttp.Direct(nil)
	}
	up := &Upstream{url: u.String(), opts: opts, answers: answers, transport: &safehttp.Transport{Base: opts.Transport, Look: true}}
	up.running, up.stop = context.WithCancel(context.Background())
	return up, nil
}

// Interrupt cancels the calls in progress. Their outcomes are then unknown.
func (u *Upstream) Interrupt() { u.stop() }

// Close closes idle connections.
func (u *Upstream) Close() {
	if t, ok := u.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// upstreamResult is an upstream's answer, and what it proves.
type upstreamResult struct {
	result json.RawMessage
	others []extension
	found  judge.Finding
}

// Run is the [Handler] of functions that the upstream has.
func (u *Upstream) Run(ctx context.Context, x semel.Execution, r *Request) (any, error) {
	body, err := r.withoutIdempotency()
	if err != nil {
		return nil, semel.Aborted(err)
	}
	header := u.header(ctx, r)
	if u.opts.PassKey != "" && r.Key != "" {
		header.Set(u.opts.PassKey, r.Key)
	}
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
	rules := judge.Rules{Answers: u.answers, Financial: a != nil && a.Financial()}
	said, err := u.send(ctx, &rules, r.ID, header, body)
	if v := said.found.Verdict; ledger && (v == judge.Aborted || v == judge.Failed) {
		// The next attempt may call again. If this can't be recorded, that attempt finds the
		// effect started and is held.
		if serr := a.SettleEffect(ctx, store.EffectFinding{Name: UpstreamEffect, State: store.EffectRefuted}); serr != nil {
			said.found = judge.Finding{}
			return said, errors.Join(err, serr)
		}
	}
	return said, err
}

// withoutIdempotency returns the request in the form for an upstream.
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

// send posts the request once. It ends when its time is over, but not with the lease: nobody
// can call a request back, so giving up would only lose the answer.
func (u *Upstream) send(ctx context.Context, rules *judge.Rules, id string, header http.Header, body []byte) (*upstreamResult, error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	defer context.AfterFunc(u.running, cancel)()
	req, err := http.NewRequestWithContext(call, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return &upstreamResult{found: judge.Finding{Verdict: judge.Aborted}}, err
	}
	req.Header = header
	resp, err := u.transport.RoundTrip(req)
	if err != nil {
		return unanswered(judge.NoAnswer(err), safehttp.Quiet(err))
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxUpstreamAnswer+1))
	switch {
	case err != nil:
		return unanswered(judge.NoAnswer(err), safehttp.Quiet(err))
	case len(said) > maxUpstreamAnswer:
		return unanswered(judge.Finding{Status: resp.StatusCode}, errors.New("its answer is too large"))
	}
	return readUpstream(rules, id, resp, said)
}

// unanswered returns the outcome if the function didn't answer.
func unanswered(found judge.Finding, err error) (*upstreamResult, error) {
	e := &Error{Code: DependencyError, Message: "The request was sent on, and no answer of the function came back, so its outcome is not known"}
	switch {
	case found.Verdict == judge.Aborted && found.Status == 0:
		e.Message = "There was no connection to the service behind this one, or it refused to take the request. Nothing was executed"
	case found.Verdict == judge.Aborted:
		e.Message = fmt.Sprintf("The service behind this one refused the request with status %d", found.Status)
	case found.Verdict == judge.Rejected:
		e.Code, e.Message = Forbidden, fmt.Sprintf("The service behind this one refused the request with status %d", found.Status)
	}
	return &upstreamResult{found: found}, fmt.Errorf("%w: %w", e, err)
}

// readUpstream reads an answer.
func readUpstream(rules *judge.Rules, id string, resp *http.Response, body []byte) (*upstreamResult, error) {
	m, ok := members(body)
	if string(m["errors"]) == "null" {
		delete(m, "errors")
	}
	found := rules.Of(judge.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body})
	echoed, named := text(m["id"])
	if _, errs := m["errors"]; !ok || m["protocol"] == nil || !errs && m["result"] == nil || named && echoed != id || !named && !errs {
		switch {
		case found.Declared():
		case found.Verdict == judge.Rejected && resp.StatusCode != http.StatusForbidden:
			// Something in front of the function has refused it, so the function hasn't seen
			// it.
			found.Verdict = judge.Aborted
		case found.Verdict == judge.Completed, found.Verdict == judge.Failed:
			found.Verdict = judge.Unknown // somebody else says this about the function
		}
		return unanswered(found, fmt.Errorf("its answer with status %d is not one of Forrst to this request", resp.StatusCode))
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
		if !found.Declared() {
			found.Verdict = judge.Completed // whatever the status
		}
		out.found = found
		return out, nil
	}
	var errs []struct {
		Code    Code            `json:"code"`
		Message string          `json:"message"`
		Source  *Source         `json:"source"`
		Details json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(m["errors"], &errs); err != nil || len(errs) == 0 {
		return unanswered(judge.Finding{Status: resp.StatusCode}, errors.New("its answer has malformed errors"))
	}
	list := make(Errors, len(errs))
	for i, e := range errs {
		list[i] = &Error{Code: cmp.Or(e.Code, DependencyError), Message: e.Message, Source: e.Source, Status: resp.StatusCode}
		if e.Details != nil {
			list[i].Details = e.Details
		}
	}
	if out.found = found; !found.Declared() {
		out.found = judged(rules, list, resp.Header)
	}
	return out, list
}
