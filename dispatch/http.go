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

	"github.com/semelhq/semel/transport/semelhttp"
)

// HTTPOptions configures a webhook. The zero value of every field but URL is the
// documented default.
type HTTPOptions struct {
	// URL is where messages are posted to. Required; http or https, without
	// credentials in it.
	URL string
	// Secrets sign what is posted, by Standard Webhooks: each is "whsec_" and 24 to
	// 64 bytes in base64. With several there is one signature for each, so that a
	// receiver can be moved from one to the next. Without any nothing is signed.
	Secrets []string
	// Header is sent with every message, such as an Authorization.
	Header http.Header
	// Check looks at the answer to a message that has a status of success, and at
	// up to MaxAnswer bytes of its body. An error means that the message was not
	// delivered; [Park] and [RetryAfter] apply. Without it the status decides, and
	// the body is not looked at.
	Check func(resp *http.Response, body []byte) error
	// MaxAnswer bounds what is read of an answer, in bytes. Defaults to 64 KiB.
	MaxAnswer int64
	// AllowPrivate allows addresses that are not public: of this machine, of
	// private networks and of cloud metadata. Allow allows some of them. By default
	// all are refused when the connection is made, whatever name led there.
	AllowPrivate bool
	Allow        []netip.Prefix
	// Transport replaces the one that is made for this receiver, and with it the
	// guard against private addresses. For tests, mostly.
	Transport http.RoundTripper
}

// DefaultMaxAnswer is that of [HTTPOptions].MaxAnswer.
const DefaultMaxAnswer = 64 << 10

// HTTP makes a [Sender] that posts messages to a URL, by Standard Webhooks: the
// header webhook-id is the message's id, the same for all tries; webhook-timestamp
// is the time of the try; webhook-signature signs both and the body. The headers
// semel-tenant and semel-operation say whose call sent it; semel-signature signs them
// and all of that, see docs/dispatch.md.
//
// A status of 2xx means that the message was delivered. Refused for good, and
// parked, are 4xx except 408, 409, 421, 423, 425 and 429. All else is tried again, a
// redirect too: it is not followed, for it would make the request one to somewhere
// else. Retry-After is honoured. Each try is one request: nothing in between sends
// it again by itself.
func HTTP(opts HTTPOptions) (Sender, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, errors.New("dispatch: the URL of a webhook is http or https, with a host and without credentials")
	}
	s, err := newSigner(opts.Secrets)
	if err != nil {
		return nil, err
	}
	base := opts.Transport
	if base == nil {
		base = newTransport(&guard{private: opts.AllowPrivate, allow: opts.Allow})
	}
	return &webhook{
		url: u.String(), signer: s, header: opts.Header.Clone(), check: opts.Check,
		limit: cmp.Or(opts.MaxAnswer, DefaultMaxAnswer), transport: &semelhttp.SafeTransport{Base: base},
	}, nil
}

// newTransport connects to where the guard allows, and uses no proxy: it would make
// the connections.
func newTransport(g *guard) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, ControlContext: g.control}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// webhook posts messages.
type webhook struct {
	url       string
	signer    signer
	header    http.Header
	check     func(*http.Response, []byte) error
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
	if t := d.Message.ContentType; t != "" {
		r.Header.Set("Content-Type", t)
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "semel-dispatch")
	}
	w.signer.sign(r.Header, &d, time.Now())
	resp, err := w.transport.RoundTrip(r)
	if err != nil {
		if errors.Is(err, errPrivate) {
			return Park("address_refused", &unreached{err})
		}
		return &unreached{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		_, _ = io.CopyN(io.Discard, resp.Body, w.limit) // so that the connection can be used again
		return refusal(resp)
	}
	if w.check == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, w.limit)
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, w.limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("status %d and a broken answer: %w", resp.StatusCode, err)
	case int64(len(body)) > w.limit:
		return fmt.Errorf("status %d and an answer of more than %d bytes", resp.StatusCode, w.limit)
	}
	return w.check(resp, body)
}

// unreached is the error of a request that got no answer. Its text has addresses and
// names of this side's network.
type unreached struct{ err error }

func (e *unreached) Error() string { return "no answer: " + e.err.Error() }
func (e *unreached) Unwrap() error { return e.err }

// kept says the same without them.
func (e *unreached) kept() string {
	_, name := errors.AsType[*net.DNSError](e.err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](e.err)
	op, network := errors.AsType[*net.OpError](e.err)
	switch {
	case errors.Is(e.err, errPrivate):
		return "the address of the receiver is not public"
	case errors.Is(e.err, context.DeadlineExceeded):
		return "no answer in time"
	case name:
		return "no answer: the name of the receiver can't be resolved"
	case certificate:
		return "no answer: the certificate of the receiver is not accepted"
	case network && op.Op == "dial":
		return "no answer: there is no connection to the receiver"
	}
	return "no answer: the connection broke off"
}

// refusal is what an answer says that is not 2xx.
func refusal(resp *http.Response) error {
	err := fmt.Errorf("status %d", resp.StatusCode)
	if resp.StatusCode/100 == 4 {
		switch resp.StatusCode {
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked,
			http.StatusTooEarly, http.StatusTooManyRequests:
		default:
			return Park("status_"+strconv.Itoa(resp.StatusCode), err)
		}
	}
	if d, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
		return RetryAfter(d, err)
	}
	return err
}

// retryAfter reads the header, which has seconds or a date.
func retryAfter(s string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(t.Sub(now), 0), true
	}
	return 0, false
}
