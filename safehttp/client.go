package safehttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// Client asks a question over HTTP: it goes to the configured address and nowhere else,
// takes a bounded time, and reads a bounded answer. Its errors are fit for logs: they
// quote neither the question nor the answer. For a request that has an effect, use a
// [Transport]. The zero value is ready for use, and may be used concurrently.
type Client struct {
	// Base makes the connections. Defaults to a [Direct] transport that all Clients
	// share.
	Base http.RoundTripper
	// Timeout bounds a question until the end of its answer. Defaults to 10 seconds.
	Timeout time.Duration
	// MaxAnswer is the longest body of an answer, in bytes. Defaults to 64 KiB.
	MaxAnswer int64
}

// Defaults of [Client].
const (
	DefaultTimeout   = 10 * time.Second
	DefaultMaxAnswer = 64 << 10
)

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ErrTooLarge is wrapped by the error of an answer with a body longer than MaxAnswer.
var ErrTooLarge = errors.New("the answer is larger")

var standard = Direct(nil)

// Direct returns a transport that connects to where a request says, and uses no proxy:
// otherwise whoever can set an environment variable could read the questions and write
// the answers. Control, unless it is nil, sees each address before the transport connects
// to it; see [net.Dialer].
func Direct(control func(ctx context.Context, network, address string, c syscall.RawConn) error) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, ControlContext: control}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// Do asks once. It returns a redirect like any other answer: following it would take the
// question, and any secret in its URL by way of the Referer, to somewhere else. An answer
// longer than MaxAnswer is an error.
func (c *Client) Do(r *http.Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(c.Timeout, DefaultTimeout))
	defer cancel()
	base := c.Base
	if base == nil {
		base = standard
	}
	resp, err := base.RoundTrip(r.WithContext(ctx)) // an http.Client would follow redirects
	if err != nil {
		return nil, Quiet(err)
	}
	defer resp.Body.Close()
	limit := cmp.Or(c.MaxAnswer, DefaultMaxAnswer)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, Quiet(err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w than %d bytes", ErrTooLarge, limit)
	}
	return &Answer{resp.StatusCode, resp.Header, body}, nil
}

// Quiet takes the URL, and whatever the other side sent, out of the text of a transport's
// error: net/http quotes lines that it can't parse. The error still wraps the original
// one.
func Quiet(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err == nil || harmless(err) {
		return err
	}
	return &quietError{err}
}

// harmless reports whether an error's text certainly quotes nothing of an answer.
func harmless(err error) bool {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, network := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return network || certificate || alert
}

type quietError struct{ err error }

func (*quietError) Error() string   { return "the answer isn't valid HTTP" }
func (e *quietError) Unwrap() error { return e.err }
