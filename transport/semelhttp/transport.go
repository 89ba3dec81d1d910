package semelhttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Transport is an [http.RoundTripper] for clients of idempotent services. It
// gives every request that changes something a key, unless it has one, and sends
// it again with the same key where that may help: after an error of the
// connection, 429, 502, 503 and 504, and after 409 with a Retry-After, which says
// that the first delivery is still running. Everything else is an answer, also
// 400 and 422.
//
// A key that this transport makes is lost with the process, and the requests
// that a program sends again by itself get a new one. Where an effect must not
// happen twice across either, make the key with [NewKey], store it with the
// intent, and set the header.
//
// The zero value is ready for use. It may be used concurrently and may not be
// changed after its first use.
type Transport struct {
	// Base sends single requests; it is wrapped in a [SafeTransport], so that it
	// does not retry by itself. Defaults to [http.DefaultTransport].
	Base http.RoundTripper
	// KeyHeader is the header with the key. Defaults to Idempotency-Key.
	KeyHeader string
	// Quoted sends made keys as RFC 8941 strings, as the IETF draft has it.
	// Most services want them bare, and a [Guard] takes both.
	Quoted bool
	// NewKey makes keys. Defaults to [NewKey].
	NewKey func() string
	// Methods get keys and are retried; others pass. Defaults to POST, PUT,
	// PATCH and DELETE.
	Methods []string
	// MaxAttempts bounds how often one request is sent. Defaults to 4.
	MaxAttempts int
	// MaxTime bounds the time from the first attempt to the start of the last.
	// Defaults to 1 minute.
	MaxTime time.Duration
	// MaxRetryAfter is the longest pause that a server may ask for; an answer
	// that asks for more is given to the caller. Defaults to 30 seconds.
	MaxRetryAfter time.Duration
	// MinPause is the first pause where the server does not ask for one. It
	// doubles with every attempt up to MaxPause, and half of it is random.
	// Defaults to 200 milliseconds.
	MinPause time.Duration
	// MaxPause defaults to 5 seconds.
	MaxPause time.Duration
	// MaxBuffer is the largest body, in bytes, that is kept for sending again
	// where the request has no GetBody. A larger one is sent once. Defaults to
	// 1 MiB.
	MaxBuffer int64

	once sync.Once
	base *SafeTransport
}

// Defaults of [Transport].
const (
	DefaultMaxAttempts   = 4
	DefaultMaxTime       = time.Minute
	DefaultMaxRetryAfter = 30 * time.Second
	DefaultMinPause      = 200 * time.Millisecond
	DefaultMaxPause      = 5 * time.Second
	DefaultMaxBuffer     = 1 << 20
)

var unsafeMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// RoundTrip sends the request until it has an answer, or gives up. It returns the
// last answer or the last error. The request's context ends it at any time.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(t.init)
	methods := t.Methods
	if methods == nil {
		methods = unsafeMethods
	}
	if !slices.Contains(methods, r.Method) {
		return t.base.base.RoundTrip(r)
	}
	open, replayable, err := t.body(r)
	if err != nil {
		return nil, err
	}
	out := t.withKey(r)
	attempts := cmp.Or(t.MaxAttempts, DefaultMaxAttempts)
	if !replayable {
		attempts = 1
	}
	start := time.Now()
	for n := 1; ; n++ {
		if out.Body, err = open(); err != nil {
			return nil, err
		}
		resp, err := t.base.RoundTrip(out)
		if resp != nil {
			resp.Request = r
		}
		if n >= attempts || r.Context().Err() != nil || !retryable(resp, err) {
			return resp, err
		}
		pause, ok := t.pause(resp, n)
		if !ok || time.Since(start)+pause > cmp.Or(t.MaxTime, DefaultMaxTime) {
			return resp, err
		}
		if resp != nil {
			drain(resp.Body)
		}
		if werr := sleep(r.Context(), pause); werr != nil {
			return nil, errors.Join(werr, err)
		}
	}
}

func (t *Transport) init() {
	base, ok := t.Base.(*SafeTransport)
	if !ok {
		base = &SafeTransport{Base: t.Base}
	}
	base.once.Do(base.init)
	t.base = base
}

// CloseIdleConnections closes those of Base.
func (t *Transport) CloseIdleConnections() {
	t.once.Do(t.init)
	t.base.CloseIdleConnections()
}

// withKey is a copy of r that has a key. The caller's request is left alone.
func (t *Transport) withKey(r *http.Request) *http.Request {
	out := *r.WithContext(r.Context())
	name := http.CanonicalHeaderKey(cmp.Or(t.KeyHeader, DefaultKeyHeader))
	if len(r.Header[name]) > 0 {
		return &out
	}
	newKey := t.NewKey
	if newKey == nil {
		newKey = NewKey
	}
	key := newKey()
	if t.Quoted {
		key = strconv.Quote(key)
	}
	out.Header = r.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header[name] = []string{key}
	return &out
}

// body makes the request's body one that can be opened for every attempt, if it
// can be. The caller's own body is used or closed in any case.
func (t *Transport) body(r *http.Request) (open func() (io.ReadCloser, error), replayable bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() (io.ReadCloser, error) { return r.Body, nil }, true, nil
	}
	if r.GetBody != nil {
		first := r.Body
		return func() (io.ReadCloser, error) {
			if b := first; b != nil {
				first = nil
				return b, nil
			}
			return r.GetBody()
		}, true, nil
	}
	limit := cmp.Or(t.MaxBuffer, DefaultMaxBuffer)
	start, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		_ = r.Body.Close()
		return nil, false, fmt.Errorf("semelhttp: read the request's body: %w", err)
	}
	if int64(len(start)) > limit {
		rest := r.Body
		return func() (io.ReadCloser, error) {
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(start), rest), rest}, nil
		}, false, nil
	}
	_ = r.Body.Close()
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(start)), nil }, true, nil
}

// retryable reports whether sending again may help.
func retryable(resp *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return resp.Header.Get("Retry-After") != ""
	}
	return false
}

// pause is how long to wait after attempt n. It reports false where the server
// asks for more than the caller allows.
func (t *Transport) pause(resp *http.Response, n int) (time.Duration, bool) {
	if resp != nil {
		if d, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return d, d <= cmp.Or(t.MaxRetryAfter, DefaultMaxRetryAfter)
		}
	}
	d := min(cmp.Or(t.MinPause, DefaultMinPause)<<min(n-1, 20), cmp.Or(t.MaxPause, DefaultMaxPause))
	return d/2 + rand.N(d/2+1), true
}

// retryAfter reads Retry-After in either of its forms.
func retryAfter(field string, now time.Time) (time.Duration, bool) {
	if field == "" {
		return 0, false
	}
	if n, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}

// drain reads what is left of a small answer, so that its connection can be used
// again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// sleep waits, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
