// Package strictclient is how this module asks others over HTTP: it goes to the
// address that was configured and nowhere else, takes a bounded time, and reads a
// bounded answer. What it says of a failure has nothing of the question and nothing
// of the answer, for it is logged.
package strictclient

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
	"time"
)

// Client asks. The zero value is ready for use, and may be used concurrently.
type Client struct {
	// Base makes the connections. Defaults to [Transport], one for all.
	Base http.RoundTripper
	// Timeout bounds a question, to the end of its answer. Defaults to 10 seconds.
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

var standard = Transport()

// Transport connects to where a request says, and uses no proxy: whoever can set a
// variable of the environment would read the questions and write the answers.
func Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// Do asks once. A redirect is an answer like any other: following it would take the
// question, and in a Referer what is secret in its URL, to somewhere else. An answer
// longer than MaxAnswer is an error.
func (c *Client) Do(r *http.Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(c.Timeout, DefaultTimeout))
	defer cancel()
	base := c.Base
	if base == nil {
		base = standard
	}
	resp, err := base.RoundTrip(r.WithContext(ctx)) // not by a client, which follows redirects
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
		return nil, fmt.Errorf("the answer is larger than %d bytes", limit)
	}
	return &Answer{resp.StatusCode, resp.Header, body}, nil
}

// Quiet takes what the other side sent, and the URL, out of the text of an error of a
// transport: net/http quotes lines that it can't read. What the error wraps stays.
func Quiet(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err == nil || harmless(err) {
		return err
	}
	return &quiet{err}
}

// harmless reports whether the text of an error is known to have nothing of an answer.
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

type quiet struct{ err error }

func (*quiet) Error() string   { return "what came back is no answer of HTTP that can be read" }
func (e *quiet) Unwrap() error { return e.err }
