package mcp

import (
	"bytes"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/store"
)

// markOf is the mark of the stream in a recorded outcome. Most have none, and aren't read for that.
func markOf(rec *store.Record) []byte {
	if !bytes.HasPrefix(rec.Result.Data, []byte(`{"mcp":2,`)) {
		return nil
	}
	return recall(rec.Result.Data).Stream
}

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
