package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/wire"
)

// answer is what a request got.
type answer struct {
	status     int
	body       string
	replayed   bool
	retryAfter time.Duration
	// code and detail are from a problem document.
	code, detail string
}

func (a *answer) ok() bool { return a.status >= 200 && a.status < 300 }

// retryable reports whether a retry may get another answer.
func (a *answer) retryable() bool {
	return a.status == http.StatusConflict || a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests
}

// replayedHeader marks an answer that is a stored one.
const replayedHeader = "Idempotency-Replayed"

// client sends orders. Every request is sent exactly as often as the demo counts it:
// net/http would re-send a request with an idempotency key if a reused connection
// breaks, so the bodies can't be rewound.
type client struct {
	http http.Client
}

// retryTimeout is how long a copy is retried.
const retryTimeout = time.Minute

func newClient() *client {
	return &client{http: http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: copies * orders, DisableCompression: true},
		Timeout:   retryTimeout,
	}}
}

// keyed is the header with an idempotency key, if there is one.
func keyed(key string) http.Header {
	if key == "" {
		return http.Header{}
	}
	return http.Header{keyHeader: {key}}
}

// newPost makes a request with a JSON document that nothing on the way sends again.
func newPost(ctx context.Context, address string, header http.Header, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	req.Header.Set("Content-Type", jsonType)
	maps.Copy(req.Header, header)
	return req, nil
}

// charge sends an order once.
func (c *client) charge(ctx context.Context, base, key string, o order) (answer, error) {
	return c.post(ctx, base+"/charges", keyed(key), document(o))
}

// post sends a JSON document once, and reads the answer.
func (c *client) post(ctx context.Context, address string, header http.Header, body []byte) (answer, error) {
	req, err := newPost(ctx, address, header, body)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, body: string(text), replayed: resp.Header.Get(replayedHeader) == "true"}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		a.retryAfter = time.Duration(s) * time.Second
	}
	var problem struct{ Code, Detail string }
	if !a.ok() && json.Unmarshal(text, &problem) == nil {
		a.code, a.detail = problem.Code, problem.Detail
	}
	return a, nil
}

// chargeUntilDone sends an order and repeats it with the same key, after the pauses of
// Retry-After, until it gets a final answer or gives up. It reports every answer.
func (c *client) chargeUntilDone(ctx context.Context, base, key string, o order, seen func(answer)) (answer, error) {
	for start := time.Now(); ; {
		a, err := c.charge(ctx, base, key, o)
		if err != nil {
			return a, err
		}
		seen(a)
		if !a.retryable() || time.Since(start) > retryTimeout {
			return a, nil
		}
		stage.Pause(ctx, max(a.retryAfter, 50*time.Millisecond))
	}
}

// chargeAndHangUp sends an order, waits until the payment service has charged,
// and closes the connection without reading the answer.
func (c *client) chargeAndHangUp(ctx context.Context, base, provider, key string, o order) error {
	req, err := newPost(ctx, base+"/charges", keyed(key), document(o))
	if err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := req.Write(conn); err != nil {
		return err
	}
	return c.awaitCharge(ctx, provider, o.Order)
}

// ledger reads the charges from the payment service.
func (c *client) ledger(ctx context.Context, provider string, query url.Values) ([]Charge, error) {
	var charges []Charge
	return charges, c.get(ctx, provider+"/charges?"+query.Encode(), &charges)
}

// records asks Semel for its records of the calls with a key.
func (c *client) records(ctx context.Context, admin, key string) ([]wire.Record, error) {
	var page struct {
		Records []wire.Record
	}
	err := c.get(ctx, admin+"/v1/records?"+url.Values{"q": {`key:"` + key + `"`}}.Encode(), &page)
	return page.Records, err
}

// get reads a JSON document.
func (c *client) get(ctx context.Context, address string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// awaitCharge returns when the payment service has charged an order.
func (c *client) awaitCharge(ctx context.Context, provider, order string) error {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	for {
		charges, err := c.ledger(ctx, provider, url.Values{"order": {order}})
		if err != nil {
			return fmt.Errorf("wait for the charge of %s: %w", order, err)
		}
		if len(charges) > 0 {
			return nil
		}
		stage.Pause(ctx, 2*time.Millisecond)
	}
}
