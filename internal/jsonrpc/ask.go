package jsonrpc

import (
	"bytes"
	"context"
	"net/http"

	"github.com/semelhq/semel/internal/sse"
)

// Ask sends a request that a gateway makes itself, by send, and returns the result or the error of
// the answer to its id, which may come in a stream; and the status of HTTP, zero if nothing came.
func Ask(send func(w http.ResponseWriter, r *http.Request, key string) error, r *http.Request, id []byte) (result, failure []byte, status int) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	k := &sse.Sink{}
	k.Event = func(raw []byte) {
		if said, fault, ok := ReadAnswer(sse.Data(raw), id); ok && result == nil && failure == nil {
			result, failure = bytes.Clone(said), bytes.Clone(fault)
			cancel() // the stream may stay open
		}
	}
	err := send(k, r.WithContext(ctx), "")
	switch {
	case k.Stream:
		return result, failure, k.Status
	case err != nil || k.Over:
		return nil, nil, 0
	}
	if said, fault, ok := ReadAnswer(k.Body.Bytes(), id); ok {
		result, failure = said, fault
	}
	return result, failure, k.Status
}
