package mcp

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/store"
)

// limit bounds a write to the caller, who may not read.
func (c *conversation) limit() (done func()) { return relay.Limit(c.W, c.Most) }

// markOf is the mark of the stream in a recorded outcome.
func markOf(rec *store.Record) []byte { return recall(rec.Result.Data).Stream }

// progressToken is what the caller knows progress by; nil if they want none.
func (r *request) progressToken() []byte { return jsonscan.At(r.params, "_meta", "progressToken") }

// head is what a recorded stream begins with.
func (r *request) head() []byte {
	head := []byte(`{"mcp":1}`)
	if token := r.progressToken(); token != nil {
		return jsonscan.Insert(head, 0, `"progressToken":`+string(token))
	}
	return head
}

// own is an event of another delivery for the caller of this one: progress has the token that they
// gave, and whoever gave none gets none. A question of the server that has been answered is left
// out.
func (c *conversation) own(event, head []byte) []byte {
	data, mine := sse.Data(event), c.req.progressToken()
	theirs := jsonscan.Member(head, "progressToken")
	switch others := theirs != nil && bytes.Equal(jsonscan.At(data, "params", "progressToken"), theirs); {
	case c.Kind == relay.Finished && jsonscan.Member(data, "id") != nil, others && mine == nil:
		return nil
	case others && !bytes.Equal(theirs, mine):
		data = jsonscan.Replaced(data, func([]byte) []byte { return mine }, "params", "progressToken")
		return append(sse.Fields(event), sse.JSON(data)...)
	}
	return event
}

// reading is how far a stream was read that the server ended before its response, as it may in the
// versions before [Modern]: a client reads on after the newest id, and after a pause that the server
// asks for.
type reading struct {
	last  string
	pause time.Duration
}

// note takes note of what an event says about that.
func (r *reading) note(event []byte) {
	if id, ok := sse.ID(event); ok {
		r.last = id
	}
	if pause, ok := sse.Retry(event); ok {
		r.pause = pause
	}
}

// wait waits for the pause. It reports false if nobody can read on.
func (r *reading) wait(ctx context.Context) bool {
	if r.last == "" {
		return false
	}
	select {
	case <-time.After(r.pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// request asks for the rest, as the sender of a call.
func (r *reading) request(ctx context.Context, call *http.Request) *http.Request {
	in := call.Clone(ctx)
	in.Method, in.Body, in.GetBody, in.ContentLength = http.MethodGet, http.NoBody, nil, 0
	in.Header.Del("Content-Type")
	in.Header["Accept"], in.Header["Last-Event-Id"] = []string{sse.MediaType}, []string{r.last}
	return in
}
