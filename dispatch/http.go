package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/safehttp"
)

// HTTPOptions configures a webhook. The zero value of every field but URL is the
// documented default.
type HTTPOptions struct {
	// URL is where to post messages. Required; http or https, without credentials.
	URL string
	// Secrets sign the messages, by Standard Webhooks: each is "whsec_" and 24 to
	// 64 bytes in base64. Each adds a signature, so that you can rotate a receiver's
	// secret. Without any, nothing is signed.
	Secrets []string
	// Header is sent with every message, such as an Authorization.
	Header http.Header
	// Check checks an answer with a status of success, and up to MaxAnswer bytes of its
	// body. An error means that the message wasn't delivered; [Park] and [RetryAfter]
	// apply. Without it the status decides, and the body is ignored.
	Check func(resp *http.Response, body []byte) error
	// MaxAnswer is how much of an answer's body is read, in bytes. Defaults to 64 KiB.
	MaxAnswer int64
	// Trace is the W3C trace context (traceparent) that a message carries, by the context of
	// its try: that of the engine's [semel.Internal]. Optional.
	Trace func(ctx context.Context) string
	// Answers say what the receiver's answers mean, in place of the table of package judge.
	Answers judge.Answers
	// AllowPrivate allows addresses that aren't public: this machine, private networks
	// and cloud metadata. Allow allows some of them. By default the transport refuses all of
	// them when it connects, whatever name resolved to them.
	AllowPrivate bool
	Allow        []netip.Prefix
	// Transport replaces the receiver's transport, and with it the guard against
	// private addresses. Mostly for tests.
	Transport http.RoundTripper
}

// DefaultMaxAnswer is the default of [HTTPOptions].MaxAnswer.
const DefaultMaxAnswer = 64 << 10

// HTTP makes a [Sender] that posts messages to a URL, by Standard Webhooks: the
// header webhook-id is the message's id, the same for all tries; webhook-timestamp
// is the time of the try; webhook-signature signs both and the body. The headers semel-tenant
// and semel-operation name the sending call's tenant and operation; semel-signature signs them
// and all of the above, see docs/dispatch.md.
//
// A status of 2xx means that the message was delivered. A status that refuses it for good
// parks it: every registered 4xx except 401, 402, 407, 408, 409, 411, 412, 415, 417, 421, 423,
// 424, 425, 426, 428, 429 and 431. After anything else, HTTP tries again under the same id,
// and the receiver has to recognise it. That includes redirects: HTTP doesn't follow them,
// because they would send the message somewhere else. Retry-After is honoured. Each try is one
// request: the transport never resends it.
func HTTP(opts HTTPOptions) (Sender, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, errors.New("dispatch: the URL of a webhook is http or https, with a host and without credentials")
	}
	s, err := newSigner(opts.Secrets)
	if err != nil {
		return nil, err
	}
	answers, err := opts.Answers.Parse()
	if err != nil {
		return nil, fmt.Errorf("dispatch: Answers: %w", err)
	}
	base := opts.Transport
	if base == nil {
		g := &safehttp.Guard{Private: opts.AllowPrivate, Allow: opts.Allow}
		base = safehttp.Direct(g.Control) // no proxy: it would make the connections
	}
	return &webhook{
		url: u.String(), signer: s, header: opts.Header.Clone(), check: opts.Check, trace: opts.Trace,
		rules: Rules(answers),
		limit: cmp.Or(opts.MaxAnswer, DefaultMaxAnswer), transport: &safehttp.Transport{Base: base},
	}, nil
}

// webhook posts messages.
type webhook struct {
	url       string
	signer    signer
	header    http.Header
	check     func(*http.Response, []byte) error
	trace     func(context.Context) string // may be nil
	rules     judge.Rules
	limit     int64
	transport http.RoundTripper // not a client, which would follow redirects
}

// Deliver posts a message once.
func (w *webhook) Deliver(ctx context.Context, d Delivery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(d.Message.Payload))
	if err != nil {
		return Park("bad_request", err)
	}
	maps.Copy(r.Header, w.header)
	maps.Copy(r.Header, d.Header)
	if t := d.Message.ContentType; t != "" {
		r.Header.Set("Content-Type", t)
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "semel-dispatch")
	}
	if w.trace != nil {
		r.Header = door.Traced(r.Header, w.trace(ctx))
	}
	w.signer.sign(r.Header, &d, time.Now())
	resp, err := w.transport.RoundTrip(r)
	if err != nil {
		if errors.Is(err, safehttp.ErrPrivate) {
			return Park("address_refused", &noAnswerError{err})
		}
		return &noAnswerError{err}
	}
	defer resp.Body.Close()
	// Read, so that the connection can be reused.
	body, err := io.ReadAll(io.LimitReader(resp.Body, w.limit+1))
	a := judge.Answer{Status: resp.StatusCode, Header: resp.Header}
	if err == nil && int64(len(body)) <= w.limit {
		a.Body = body
	}
	if found := w.rules.Of(a); found.Verdict != judge.Completed {
		if err != nil {
			found = judge.Finding{} // what broke off proves nothing
		}
		return refusal(resp, found, &a)
	}
	switch {
	case w.check == nil && (err == nil || !w.rules.Reads(resp.StatusCode)):
		return nil
	case err != nil:
		return &answerError{judge.Finding{}, fmt.Errorf("status %d and a broken answer: %w", resp.StatusCode, err)}
	case int64(len(body)) > w.limit:
		return fmt.Errorf("status %d and an answer of more than %d bytes", resp.StatusCode, w.limit)
	}
	return w.check(resp, body)
}

// noAnswerError is the error of a request that got no answer. Its text has addresses and
// names of this service's network.
type noAnswerError struct{ err error }

func (e *noAnswerError) Error() string { return "no answer: " + e.err.Error() }
func (e *noAnswerError) Unwrap() error { return e.err }

// kept is the text without them.
func (e *noAnswerError) kept() string {
	why := "no answer: the connection broke off"
	if errors.Is(e.err, context.DeadlineExceeded) {
		why = "no answer in time"
	}
	return cmp.Or(e.unsent(), why)
}

// unsent says why there was no connection to send anything on; empty if there may have
// been one.
func (e *noAnswerError) unsent() string {
	_, name := errors.AsType[*net.DNSError](e.err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](e.err)
	op, network := errors.AsType[*net.OpError](e.err)
	switch {
	case errors.Is(e.err, safehttp.ErrPrivate):
		return "the address of the receiver is not public"
	case name:
		return "no answer: the name of the receiver can't be resolved"
	case certificate:
		return "no answer: the certificate of the receiver is not accepted"
	case network && op.Op == "dial":
		return "no answer: there is no connection to the receiver"
	}
	return ""
}

// FindingOf says what the error of a try by [HTTP] proves about the message. An error from
// elsewhere proves nothing.
func FindingOf(err error) judge.Finding {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.found
	}
	e, ok := errors.AsType[*noAnswerError](err)
	if !ok {
		return judge.Finding{}
	}
	if e.unsent() != "" {
		return judge.Finding{Verdict: judge.Aborted}
	}
	return judge.NoAnswer(e.err)
}

// answerError is the error of a request with an unsuccessful answer.
type answerError struct {
	found judge.Finding
	err   error
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// Rules returns the rules for judging receivers' answers. The sender follows no redirect, so
// one isn't a result.
func Rules(answers *judge.Named) judge.Rules {
	return judge.Rules{Answers: answers, Contract: contract, RedirectsUnclear: true}
}

// contract is the meaning of receivers' answers: a 409 says that they are already working on
// the message.
var contract = judge.Answers{Unknown: []string{"409"}}.Must()

// refusal is the error for an answer that isn't a success. Its text has the receiver's own
// words, which are what somebody needs who decides about a parked message. An answer that
// proves nothing may come from a gateway, and its words are about something else.
func refusal(resp *http.Response, found judge.Finding, a *judge.Answer) error {
	text := fmt.Sprintf("status %d", resp.StatusCode)
	if code, words := a.Words(); found.Verdict != judge.Unknown && cmp.Or(words, code) != "" {
		text += ": " + cmp.Or(words, code)
		if code != "" && words != "" {
			text += " (" + code + ")"
		}
	}
	err := error(&answerError{found, errors.New(text)})
	if found.Verdict == judge.Rejected {
		return Park("status_"+strconv.Itoa(resp.StatusCode), err)
	}
	if d, ok := safehttp.RetryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
		return RetryAfter(d, err)
	}
	return err
}
