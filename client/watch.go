package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// Event is one event of the stream of decisions.
type Event struct {
	// ID continues the stream after this event. An event without an ID has the previous
	// event's.
	ID string
	// Type is decided, ended, purged, lease_lost or gap. A gap means that events were
	// lost.
	Type string
	// Data is JSON, in the form that the API describes for each type.
	Data []byte
}

// WatchFilter selects events; zero members select all.
type WatchFilter struct {
	Operation, Tenant string
}

// maxEvent bounds one line of the stream, in bytes.
const maxEvent = 1 << 20

// errStreamEnded says that the stream ended, which may happen at any time.
var errStreamEnded = errors.New("the stream has ended")

// Watch follows the decisions of the answering node, from the event after lastID, or from now
// on if that is empty. If the connection breaks, it continues after the last event. It ends
// with an error: ctx's if that has ended, a refusal, or [semel.CodeStoreUnavailable] if the
// service can't be reached for Options.Tries in a row. It needs the role viewer and the admin
// listener.
func (c *Client) Watch(ctx context.Context, lastID string, filter WatchFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		last, stopped := lastID, false
		for n := 1; ; n++ {
			err := c.watch(ctx, last, filter, func(ev Event) bool {
				last, n = ev.ID, 1
				stopped = !yield(ev, nil)
				return !stopped
			})
			if stopped {
				return
			}
			if ctx.Err() != nil {
				yield(Event{}, context.Cause(ctx))
				return
			}
			f := asFailed(err)
			if e, ok := errors.AsType[*semel.Error](err); ok && e.Code != semel.CodeStoreUnavailable && e.Code != semel.CodeClosed {
				yield(Event{}, e)
				return
			}
			if f.final || n >= c.opts.Tries {
				yield(Event{}, lostAnswer(f, semel.CodeStoreUnavailable))
				return
			}
			if !c.pause(ctx, 0, n) {
				<-ctx.Done() // ctx ends before the next try would begin
			}
		}
	}
}

// watch reads the events of one connection, and returns why they ended.
func (c *Client) watch(ctx context.Context, lastID string, filter WatchFilter, got func(Event) bool) error {
	params := url.Values{}
	if filter.Operation != "" {
		params.Set("operation", filter.Operation)
	}
	if filter.Tenant != "" {
		params.Set("tenant", filter.Tenant)
	}
	q := &request{method: http.MethodGet, to: c.records, path: "/v1/decisions", header: http.Header{"Accept": {"text/event-stream"}}}
	if len(params) > 0 {
		q.path += "?" + params.Encode()
	}
	if lastID != "" {
		q.header.Set("Last-Event-ID", lastID)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The service sends a heartbeat every few seconds.
	heartbeat := time.AfterFunc(c.opts.Timeout+c.opts.MaxWait, cancel)
	defer heartbeat.Stop()
	resp, err := c.roundTrip(ctx, q, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || media != "text/event-stream" {
		return c.refusedStream(resp)
	}
	ev := Event{ID: lastID}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		heartbeat.Reset(c.opts.Timeout + c.opts.MaxWait)
		line := lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && len(ev.Data) > 0:
			if !got(ev) {
				return nil
			}
			ev = Event{ID: ev.ID}
		case field == "id":
			ev.ID = value
		case field == "event":
			ev.Type = value
		case field == "data":
			if ev.Data != nil {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data = append(ev.Data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return &failed{final: errors.Is(err, bufio.ErrTooLong), err: fmt.Errorf("the stream broke off: %w", plain(err))}
	}
	return &failed{err: errStreamEnded}
}

// refusedStream says why there is no stream.
func (c *Client) refusedStream(resp *http.Response) error {
	var text bytes.Buffer
	if _, err := text.ReadFrom(http.MaxBytesReader(nil, resp.Body, maxEvent)); err != nil {
		return &failed{err: fmt.Errorf("the answer broke off: %w", plain(err))}
	}
	r, err := c.read(resp, text.Bytes())
	switch {
	case err != nil:
		return err
	case r.problem == nil:
		return &failed{final: true, err: &AnswerError{r.status, "it is not a stream of events"}}
	}
	return r.refusal()
}
