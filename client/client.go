package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// Options configures a [Client]. The zero value, and nil, mean the documented
// defaults.
type Options struct {
	// Token is sent as a bearer token with every request, after an answer without it has shown
	// that Semel serves that address. Optional.
	Token string
	// TokenFile is a file with the token; white space around it is ignored. The client reads it for
	// every request, so a new token needs no restart. It refuses a file that others can write.
	TokenFile string
	// AdminURL is the address of the admin listener, which serves searches, settlements and the
	// stream of decisions. Answers from other listeners are refused. Defaults to the client's
	// own address, where any listener of Semel may answer.
	AdminURL string
	// Transport makes the requests. It is wrapped in a [safehttp.Transport], so that it
	// doesn't resend by itself. Defaults to a transport like [http.DefaultTransport] with
	// connections for many concurrent calls.
	Transport http.RoundTripper
	// TLS is for the default transport: roots and the client certificate.
	TLS *tls.Config
	// Timeout bounds one try of one request, not counting the wait for an outcome.
	// Defaults to 10 seconds.
	Timeout time.Duration
	// MaxWait is the longest that any operation lets a delivery wait for an outcome; a try to
	// begin may take that much longer. Defaults to 30 seconds.
	MaxWait time.Duration
	// Tries bounds how often a request is sent without a usable answer. Do goes on sending the
	// end of an execution while the lease lasts; the methods that end one by its name, such as
	// Complete, don't, so repeat them after CodeUnknown. Defaults to 4.
	Tries int
	// MinPause is the bound of the first pause between tries; it doubles with every try up to
	// MaxPause. The pause is random, from zero to its bound, and is added to a Retry-After.
	// Defaults to 100 milliseconds.
	MinPause time.Duration
	// MaxPause defaults to 2 seconds.
	MaxPause time.Duration
	// MaxRetryAfter is the longest pause that a server may ask for; if it asks for more,
	// you get its answer. Defaults to 30 seconds.
	MaxRetryAfter time.Duration
	// MaxAnswer bounds an answer, in bytes. Defaults to 32 MiB.
	MaxAnswer int64
}

// Defaults of [Options].
const (
	DefaultTimeout       = 10 * time.Second
	DefaultMaxWait       = semel.DefaultMaxWait
	DefaultTries         = 4
	DefaultMinPause      = 100 * time.Millisecond
	DefaultMaxPause      = 2 * time.Second
	DefaultMaxRetryAfter = 30 * time.Second
	DefaultMaxAnswer     = 32 << 20
)

// Records reads and changes records: a service's through its [Client], or those of a
// [semel.Engine] in this process. Commands and pages that take a Records serve both.
type Records interface {
	// Lookup is [semel.Engine.Lookup].
	Lookup(ctx context.Context, id semel.ID) (semel.Record, error)
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
	// Settle is [semel.Engine.Settle].
	Settle(ctx context.Context, id semel.ID, s semel.Settlement, reason string) (semel.Record, error)
	// Confirm is [semel.Engine.Confirm].
	Confirm(ctx context.Context, id semel.ID, fence int64, who, reason string) (semel.Record, error)
	// Purge is [semel.Engine.Purge].
	Purge(ctx context.Context, id semel.ID, r semel.Removal) error
}

// Client calls a service. It may be used concurrently.
type Client struct {
	// calls is for programs' requests about their calls, and records for operators'.
	calls, records *peer.Listener
	opts           Options
	http           *http.Client
	// traced: the transport reports when it has a connection, so its errors can prove
	// that nothing was sent.
	traced bool
}

var (
	_ semel.Doer      = (*Client)(nil)
	_ Records         = (*Client)(nil)
	_ Records         = (*semel.Engine)(nil)
	_ semel.Execution = (*Execution)(nil)
)

// New makes a client of the service at an address such as https://semel.internal:8480.
// Options may be nil. It sends nothing yet. The error names every problem with the
// options.
func New(baseURL string, opts *Options) (*Client, error) {
	c := &Client{}
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxWait = cmp.Or(o.MaxWait, DefaultMaxWait)
	o.Tries = cmp.Or(o.Tries, DefaultTries)
	o.MinPause = cmp.Or(o.MinPause, DefaultMinPause)
	o.MaxPause = cmp.Or(o.MaxPause, DefaultMaxPause)
	o.MaxRetryAfter = cmp.Or(o.MaxRetryAfter, DefaultMaxRetryAfter)
	o.MaxAnswer = cmp.Or(o.MaxAnswer, DefaultMaxAnswer)
	var errs []error
	if min(o.Timeout, o.MaxWait, o.MinPause, o.MaxPause, o.MaxRetryAfter) < 0 || o.Tries < 0 || o.MaxAnswer < 0 {
		errs = append(errs, errors.New("client: Timeout, MaxWait, Tries, MinPause, MaxPause, MaxRetryAfter and MaxAnswer may not be negative"))
	}
	if o.Token != "" && o.TokenFile != "" {
		errs = append(errs, errors.New("client: Token and TokenFile exclude each other: give one"))
	}
	if o.Transport != nil && o.TLS != nil {
		errs = append(errs, errors.New("client: TLS is for the default transport: configure the Transport instead"))
	}
	if _, err := peer.Token(o.Token, o.TokenFile); err != nil {
		errs = append(errs, fmt.Errorf("client: %w", err))
	}
	own, err := address("the address", "8480", baseURL)
	if err != nil {
		errs = append(errs, err)
	}
	admin, err := address("AdminURL", "8481", cmp.Or(o.AdminURL, baseURL))
	if err != nil && o.AdminURL != "" {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	base := transport(o)
	_, c.traced = base.(*http.Transport)
	c.http = &http.Client{
		Transport:     &safehttp.Transport{Base: base},
		CheckRedirect: peer.NoRedirects, // a redirect isn't our request any more, either
	}
	c.calls = &peer.Listener{URL: own, Token: o.Token, TokenFile: o.TokenFile, HTTP: c.http}
	if c.records = c.calls; o.AdminURL != "" {
		c.records = &peer.Listener{URL: admin, Kind: peer.Admin, Token: o.Token, TokenFile: o.TokenFile, HTTP: c.http}
	}
	return c, nil
}

func transport(o *Options) http.RoundTripper {
	if o.Transport != nil {
		return o.Transport
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256
	if o.TLS != nil {
		t.TLSClientConfig = o.TLS.Clone()
	}
	return t
}

// address checks the address of a listener, which usually has a port. Its errors don't repeat the
// text, which may contain a password.
func address(what, port, text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("client: %s is not an http or https URL such as https://semel.internal:%s", what, port)
	case u.User != nil:
		return "", fmt.Errorf("client: %s has a user name or password in it: use Token or TokenFile", what)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("client: %s has a query or a fragment", what)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Close closes idle connections. End all executions first.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}
