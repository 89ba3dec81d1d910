package shield

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
)

// Client makes HTTP requests that are effects of calls: each is in the ledger before its
// first byte leaves (IDS-XI.S3), has a derived key if the provider takes one
// (IDS-XI.S1), and is sent at most once; further attempts get its recorded answer.
//
// The zero value is ready for use. You may use a Client concurrently; don't change it
// after its first use.
type Client struct {
	// Provider says how the request carries the key and what answers prove.
	Provider Provider
	// Base makes the connections. Defaults to [http.DefaultTransport].
	Base http.RoundTripper
	// Timeout bounds a request, from its start to the end of its answer. Defaults
	// to 30 seconds. A request that is cut off may have had its effect.
	Timeout time.Duration
	// MaxBody is how much of an answer's body the client records and returns, in bytes.
	// Defaults to 64 KiB. It must fit into Operation.MaxResult in base64.
	MaxBody int64
	// Keep names headers of the answer to record, such as Location. Content-Type always is.
	Keep []string
	// Words returns the code and the text with which an answer that isn't a success explains
	// itself, such as those of [judge.Answer.Words]. They become the failure that callers
	// see, so leave it nil for a provider that writes for you and not for your callers. It
	// isn't asked about an answer that proves nothing.
	Words func(r *Response) (code, text string)

	once sync.Once
	keys *KeyTransport
}

// Defaults of [Client].
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxBody = 64 << 10
)

// standard is the client of [Do].
var standard Client

// Do is [Client.Do] of the zero Client: a request in the ledger, without a key.
func Do(ctx context.Context, x semel.Execution, name string, req *http.Request) (*Response, error) {
	return standard.Do(ctx, x, name, req)
}

// Do makes a request as the named effect of the call. A further attempt gets the
// recorded answer, and its request isn't sent. Redirects aren't followed.
//
// If the answer isn't a success, the error is a [*StatusError], marked as
// [semel.Rejected] if the provider refused, as [semel.Aborted] if it didn't try, and as
// [semel.Failure] if it says that it failed. An error that proves that nothing was sent is
// marked as aborted too. After any other error, marked as [semel.Abandoned], the result is
// unknown: return it from your handler, and the call is held until a reconciler or an
// operator settles it.
//
// Do uses ctx, which ends with the lease, and not the request's own context.
func (c *Client) Do(ctx context.Context, x semel.Execution, name string, req *http.Request) (*Response, error) {
	c.once.Do(func() { c.keys = ProviderKey(c.Provider, c.Base) })
	if err := c.Provider.Validate(); err != nil {
		return nil, err
	}
	sent := false
	resp, err := semel.Effect(ctx, x, name, func(ctx context.Context, effectKey string) (*Response, error) {
		sent = true
		return c.send(ctx, effectKey, req, moves(x))
	})
	if !sent {
		closeBody(req)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// send sends the request, after the intent is durable.
func (c *Client) send(ctx context.Context, effectKey string, req *http.Request, financial bool) (*Response, error) {
	ctx, cancel := context.WithTimeout(withKey(ctx, effectKey), cmp.Or(c.Timeout, DefaultTimeout))
	defer cancel()
	if err := ctx.Err(); err != nil {
		closeBody(req)
		return nil, semel.Aborted(err) // the lease ended before the request began
	}
	var transport http.RoundTripper = c.keys
	if c.Provider.Header == "" && c.Provider.Field == "" {
		transport = c.keys.Base
	}
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = hide(err)
		if NothingSent(err) {
			return nil, semel.Aborted(err)
		}
		return nil, semel.Abandoned(err)
	}
	defer resp.Body.Close()
	kept, err := c.read(resp)
	if err != nil {
		// The head arrived, but the body broke off, so the answer is unknown.
		return nil, semel.Abandoned(fmt.Errorf("the provider's answer broke off: %w", hide(err)))
	}
	if c.Provider.Header != "" || c.Provider.Field != "" {
		kept.Key = c.Provider.Key(effectKey)
	}
	failed := &StatusError{Response: kept}
	var verdict Verdict
	if c.Provider.Judge != nil {
		verdict = c.Provider.Judge(kept)
	} else {
		verdict = judgeProvider(kept, financial)
	}
	if c.Words != nil && verdict != Happened && verdict != Unclear {
		failed.Code, failed.Text = c.Words(kept)
	}
	if failed.Code != "" && verdict != Refused {
		failed.Text = strings.TrimSpace(failed.Text + " (" + failed.Code + ")") // only refusals are recorded with a code
	}
	kept.Header = keep(kept.Header, c.Keep...)
	switch verdict {
	case Happened:
		return kept, nil
	case Refused:
		return nil, semel.Rejected(cmp.Or(failed.Code, fmt.Sprintf("status_%d", kept.Status)), failed)
	case NotTried:
		return nil, semel.Aborted(failed)
	case Failed:
		return nil, semel.Failure(failed)
	}
	return nil, semel.Abandoned(failed)
}

// moves reports whether the call's operation is financial, as far as its execution knows: an
// execution over the API doesn't.
func moves(x semel.Execution) bool {
	f, ok := x.(interface{ Financial() bool })
	return ok && f.Financial()
}

// read reads the part of an answer that is judged.
func (c *Client) read(resp *http.Response) (*Response, error) {
	limit := cmp.Or(c.MaxBody, DefaultMaxBody)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	kept := &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
	if int64(len(body)) > limit {
		kept.Body, kept.Truncated = body[:limit], true
	}
	return kept, nil
}

// keep selects the headers of an answer to record.
func keep(header http.Header, names ...string) http.Header {
	kept := http.Header{}
	for _, name := range append([]string{"Content-Type"}, names...) {
		if v := header.Values(name); len(v) > 0 {
			kept[http.CanonicalHeaderKey(name)] = v
		}
	}
	return kept
}

// hide removes addresses, which reveal the network, and the URL, which may have secrets,
// from the text of an error, because callers see it as the text of a failure. The error
// still wraps the same errors.
func hide(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return &discreet{cmp.Or(e.Err, "the lookup failed"), err}
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Err != nil {
		return &discreet{e.Op + ": " + e.Err.Error(), err}
	}
	return safehttp.Quiet(err)
}

// discreet is an error with another text.
type discreet struct {
	text string
	err  error
}

func (e *discreet) Error() string { return "no answer of the provider: " + e.text }
func (e *discreet) Unwrap() error { return e.err }
