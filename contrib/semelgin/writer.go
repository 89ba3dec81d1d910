package semelgin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer is the guard's ResponseWriter as gin's handlers expect one: the status is sent with
// the first byte, or in the end.
type writer struct {
	http.ResponseWriter
	r            *http.Request
	status, size int  // size -1: nothing is written
	said         bool // somebody has set the status
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *writer) Status() int                 { return w.status }
func (w *writer) Size() int                   { return w.size }
func (w *writer) Written() bool               { return w.size >= 0 }

func (w *writer) WriteHeader(status int) {
	switch {
	case w.Written():
		if status >= http.StatusInternalServerError {
			w.ResponseWriter.WriteHeader(status) // changes nothing, but shows a recoverer to the guard
		}
	case status > 0:
		w.status, w.said = status, true
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.size = max(w.size, 0)
	}
	return conn, rw, err
}

// CloseNotify says when the handlers are to stop. If they are guarded, that isn't when the
// client hangs up.
func (w *writer) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.r.Context(), func() { gone <- true })
	return gone
}

// Pusher is nil, as where the connection can't push.
func (w *writer) Pusher() http.Pusher { return nil }

// answered is gin's own writer once the guard has answered on it for handlers that have added
// errors. If somebody else writes about them, it goes to the guard, which drops and reports it.
type answered struct {
	gin.ResponseWriter
	guard http.ResponseWriter
}

func (w *answered) WriteHeader(status int)            { w.guard.WriteHeader(status) }
func (w *answered) Write(p []byte) (int, error)       { return w.guard.Write(p) }
func (w *answered) WriteString(s string) (int, error) { return io.WriteString(w.guard, s) }
