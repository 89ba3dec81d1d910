package forrstclient

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
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/safehttp"
)

// Options configures a [Client]. The zero value of every field is the documented default.
type Options struct {
	// Header is sent with each request, such as Authorization. Optional.
	Header http.Header
	// Transport makes the requests. It is wrapped in a [safehttp.Transport], so that it
	// doesn't resend by itself. Defaults to a transport like [http.DefaultTransport].
	Transport http.RoundTripper
	// Timeout bounds one try. Defaults to [forrst.DefaultTimeout].
	Timeout time.Duration
	// Tries bounds how often a call is sent; the service may advise fewer. Defaults to
	// [client.DefaultTries].
	Tries int
	// MaxRetryAfter is the longest pause that the service may ask for; if it asks for more,
	// you get its answer. Defaults to [client.DefaultMaxRetryAfter].
	MaxRetryAfter time.Duration
}

// Call is one operation, however often it is sent.
type Call struct {
	// Function names the function to run. Required. Without a Version it is the latest stable one.
	Function, Version string
	// Arguments must encode as a JSON object. Nil: there are none.
	Arguments any
	// Key is the same in all tries of this operation and in no other. Without one the call has
	// no idempotency extension and is sent only once, which suits functions that only read.
	Key string
	// TTL asks the service to keep the outcome this long, in whole seconds. Zero: the service
	// decides.
	TTL time.Duration
	// Context is propagated to the function; a JSON object. Optional.
	Context any
	// Extensions are further extensions, without idempotency.
	Extensions []forrst.Extension
}

// Result is a function's success.
type Result struct {
	// Data is the function's return value, as JSON.
	Data json.RawMessage
	// Status is "processed" if this try ran the function, and "cached" if an earlier request
	// did; empty for a call without a key.
	Status string
	// OriginalRequestID is the id of the request that ran; empty for a call without a key.
	OriginalRequestID string
	// RequestID is the id of the try that got the answer, and Tries is how many there were.
	RequestID string
	Tries     int
}

// Client calls the functions of one service. It may be used concurrently.
type Client struct {
	url  string
	opts Options
	http http.RoundTripper
}

// New makes a client of the service at an http or https URL. Options may be nil. It sends
// nothing yet.
func New(serviceURL string, opts *Options) (*Client, error) {
	u, err := url.Parse(serviceURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("forrstclient: a service has an http or https URL")
	}
	c := &Client{url: u.String()}
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
	if o.Timeout < 0 || o.Tries < 0 || o.MaxRetryAfter < 0 {
		return nil, errors.New("forrstclient: Timeout, Tries and MaxRetryAfter may not be negative")
	}
	o.Timeout, o.Tries = cmp.Or(o.Timeout, forrst.DefaultTimeout), cmp.Or(o.Tries, client.DefaultTries)
	o.MaxRetryAfter = cmp.Or(o.MaxRetryAfter, client.DefaultMaxRetryAfter)
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	c.http = &safehttp.Transport{Base: o.Transport}
	return c, nil
}

// Close closes idle connections of the transport.
func (c *Client) Close() {
	if t, ok := c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Call sends a call until the service returns an outcome or a refusal that another try wouldn't
// change, or until there are no more tries. The service's errors have the type [forrst.Errors].
// One with IDEMPOTENCY_PROCESSING leaves the outcome open. UNAVAILABLE may leave it open too: the
// function was executed, but its outcome could not be recorded yet. So may DEADLINE_EXCEEDED and
// DEPENDENCY_ERROR.
//
// The error has [semel.CodeUnknown] if no answer came to the last try. It also has it if an
// earlier try may have run the function, and the refusal of the last one doesn't come from the
// call's record; then it wraps the service's errors. Whenever the outcome is open, call again
// later with the same key.
func (c *Client) Call(ctx context.Context, call Call) (*Result, error) {
	open, sent := false, false // an earlier try may have run the function; it reached somebody
	for try := 1; ; try++ {
		id := "req_" + safehttp.NewKey()
		body, err := call.request(id)
		if err != nil {
			return nil, &semel.Error{Code: semel.CodeInvalidCall, Message: "the call has no JSON form", Err: err}
		}
		var last error
		pause, again := ownPause(try), true
		switch answer, err := c.send(ctx, id, body); {
		case err != nil:
			nothing := safehttp.NothingSent(err)
			if sent {
				err = lastTry{err}
			}
			last = &semel.Error{Code: semel.CodeUnknown, Message: fmt.Sprintf("no answer of the service came to %d requests", try), Err: err}
			open, sent = open || !nothing, sent || !nothing
		case len(answer.Errors) == 0:
			res := &Result{Data: answer.Result, RequestID: id, Tries: try}
			res.Status, res.OriginalRequestID = answer.idempotency()
			return res, nil
		default:
			last = answer.Errors
			if open && !answer.recorded() {
				// "Nothing was executed" is about the last request alone.
				last = &semel.Error{Code: semel.CodeUnknown, Message: "an earlier request may have run the function, and the last one was refused", Err: answer.Errors}
			}
			open, sent = open || answer.open(), true
			pause, again = answer.advice(try, pause)
		}
		if !again || call.Key == "" || try >= c.opts.Tries || pause > c.opts.MaxRetryAfter || ctx.Err() != nil {
			return nil, last
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errors.Join(last, ctx.Err())
		}
	}
}

// lastTry is the error of a try after others that were sent. What its type says, such as that
// nothing was sent, is about that one alone, so only [errors.Is] looks into it.
type lastTry struct{ error }

func (e lastTry) Is(target error) bool { return errors.Is(e.error, target) }

// request returns the call as a request with an id.
func (call *Call) request(id string) ([]byte, error) {
	type target struct {
		Function  string `json:"function"`
		Version   string `json:"version,omitempty"`
		Arguments any    `json:"arguments,omitempty"`
	}
	type options struct {
		Key string           `json:"key"`
		TTL *forrst.Duration `json:"ttl,omitempty"`
	}
	extensions := call.Extensions
	if call.Key != "" {
		o := options{Key: call.Key}
		if call.TTL > 0 {
			o.TTL = &forrst.Duration{Value: int64((call.TTL + time.Second - 1) / time.Second), Unit: "second"}
		}
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		extensions = append(extensions[:len(extensions):len(extensions)], forrst.Extension{URN: forrst.IdempotencyURN, Options: raw})
	}
	return json.Marshal(struct {
		Protocol   map[string]string  `json:"protocol"`
		ID         string             `json:"id"`
		Call       target             `json:"call"`
		Context    any                `json:"context,omitempty"`
		Extensions []forrst.Extension `json:"extensions,omitempty"`
	}{map[string]string{"name": "forrst", "version": forrst.ProtocolVersion}, id, target{call.Function, call.Version, call.Arguments}, call.Context, extensions})
}

// send posts a request once. An error means that no answer came from the service.
func (c *Client) send(ctx context.Context, id string, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.opts.Header != nil {
		req.Header = c.opts.Header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, safehttp.Quiet(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, client.DefaultMaxAnswer))
	if err != nil {
		return nil, safehttp.Quiet(err)
	}
	return read(resp, id, text)
}
