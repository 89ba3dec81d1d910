package judge

import (
	"net/http"
	"strconv"
)

// rpcStatus has the status that the errors of JSON-RPC have in A2A (section 5.4 of its
// specification). Only those of JSON-RPC and A2A are here: any other says that the agent
// failed.
var rpcStatus = map[int]int{
	-32700: http.StatusBadRequest,           // not JSON
	-32600: http.StatusBadRequest,           // not a request
	-32601: http.StatusNotFound,             // no such method
	-32602: http.StatusBadRequest,           // parameters that aren't valid
	-32001: http.StatusNotFound,             // no such task
	-32002: http.StatusConflict,             // a task that can't be cancelled
	-32003: http.StatusBadRequest,           // no push notifications
	-32004: http.StatusBadRequest,           // an operation that the agent doesn't have
	-32005: http.StatusUnsupportedMediaType, // a type of content that it doesn't take
	-32006: http.StatusBadGateway,           // an answer of another agent that isn't valid
	-32007: http.StatusBadRequest,           // no extended card
	-32008: http.StatusBadRequest,           // an extension that the caller must know
	-32009: http.StatusBadRequest,           // a version that the agent doesn't speak
	-31401: http.StatusUnauthorized,         // as the SDK for Go says who asks
	-31403: http.StatusForbidden,
}

// A2A judges an error of JSON-RPC in an answer of an agent, by the status that belongs to its
// code. The header is that of the answer.
func (r *Rules) A2A(code int, header http.Header) Finding {
	status, known := rpcStatus[code]
	if !known {
		status = http.StatusInternalServerError
	}
	f := r.Of(status, header)
	f.Code = strconv.Itoa(code)
	return f
}
