package safehttp

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

	"github.com/semelhq/semel/safehttp/internal/carrier"
)

// Retrier is an [http.RoundTripper] for clients of idempotent services. It gives every
// request that changes something a key, unless it has one, and sends it again with the
// same key if that may help: after an error of the connection, after 429, 502, 503 and
// 504, and after 409 with a Retry-After, which says that the first delivery is still
// running. Everything else is an answer, also 400 and 422.
//
// A key that this transport makes is lost with the process, and if your program sends a
// request again itself, that gets a new one. If an effect must not happen twice across
// either, make the key with [NewKey], store it with the intent, and set the header.
//
// The zero value is ready for use. You may use it concurrently, but don't change it after
// its first use.
type Retrier struct {
	// Base sends single requests. It is wrapped in a [Transport], so that it doesn't
	// retry by itself. Defaults to [http.DefaultTransport].
	Base http.RoundTripper
	// KeyHeader is the header with the key. Defaults to Idempotency-Key.
	KeyHeader string
	// Quoted sends the keys that it makes as RFC 8941 strings, as the IETF draft
	// specifies. Most services want them bare; a guard of package semelhttp accepts both.
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
	// MaxRetryAfter is the longest pause that a server may ask for; if it asks for more,
	// you get its answer. Defaults to 30 seconds.
	MaxRetryAfter time.Duration
	// MinPause is the first pause if the server doesn't ask for one. It doubles with
	// every attempt up to MaxPause, and half of it is random. Defaults to 200
	// milliseconds.
	MinPause time.Duration
	// MaxPause defaults to 5 seconds.
	MaxPause time.Duration
	// MaxBuffer is the largest body, in bytes, to keep for sending again if the request has
	// no GetBody. A larger one is sent once. Defaults to 1 MiB.
	MaxBuffer int64

	once sync.Once
	base *Transport
}

// Defaults of [Retrier].
const (
	DefaultMaxAttempts   = 4
	DefaultMaxTime       = time.Minute
	DefaultMaxRetryAfter = 30 * time.Second
	DefaultMinPause      = 200 * time.Millisecond
	DefaultMaxPause      = 5 * time.Second
	DefaultMaxBuffer     = 1 << 20
)

// defaultKeyHeader is the header of the IETF draft.
const defaultKeyHeader = "Idempotency-Key"

var unsafeMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// RoundTrip sends the request until it has an answer, or gives up and returns the last
// answer or error. The request's context ends it at any time.
func (t *Retrier) RoundTrip(r *http.Request) (*http.Response, error) {
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
	start, sent := time.Now(), false // an attempt before may have had an effect
	for n := 1; ; n++ {
		if out.Body, err = open(); err != nil {
			return nil, err
		}
		resp, err := t.base.RoundTrip(out)
		if resp != nil {
			resp.Request = r
		}
		if sent && NothingSent(err) {
			err = &carrier.Error{Err: err} // which is about this attempt alone
		}
		sent = sent || !NothingSent(err)
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

func (t *Retrier) init() {
	base, ok := t.Base.(*Transport)
	if !ok {
		base = &Transport{Base: t.Base}
	}
	base.once.Do(base.init)
	t.base = base
}

// CloseIdleConnections closes the idle connections of Base.
func (t *Retrier) CloseIdleConnections() {
	t.once.Do(t.init)
	t.base.CloseIdleConnections()
}

// withKey returns a copy of r that has a key, and leaves the caller's request alone.
func (t *Retrier) withKey(r *http.Request) *http.Request {
	out := *r.WithContext(r.Context())
	name := http.CanonicalHeaderKey(cmp.Or(t.KeyHeader, defaultKeyHeader))
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

// body makes a function that opens the request's body for every attempt, if it can be
// opened again. The caller's own body is used or closed in any case.
func (t *Retrier) body(r *http.Request) (open func() (io.ReadCloser, error), replayable bool, err error) {
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
		return nil, false, fmt.Errorf("safehttp: read the request's body: %w", err)
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

// retryable reports whether sending again may help. It does after every error but the end of the
// caller's context, which isn't known by the error: timeouts of transports look the same.
func retryable(resp *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return resp.Header.Get("Retry-After") != ""
	}
	return false
}

// pause is how long to wait after attempt n. It reports false if the server asks for more
// than MaxRetryAfter.
func (t *Retrier) pause(resp *http.Response, n int) (time.Duration, bool) {
	if resp != nil {
		if d, ok := RetryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return d, d <= cmp.Or(t.MaxRetryAfter, DefaultMaxRetryAfter)
		}
	}
	d := min(cmp.Or(t.MinPause, DefaultMinPause)<<min(n-1, 20), cmp.Or(t.MaxPause, DefaultMaxPause))
	return d/2 + rand.N(d/2+1), true
}

// RetryAfter reads the header Retry-After, which has seconds or a date.
func RetryAfter(field string, now time.Time) (time.Duration, bool) {
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

// drain reads the rest of a small answer, so that its connection can be reused.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// sleep waits for d, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
