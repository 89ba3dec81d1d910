package demo

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// entrance is the address of the toy service for one process of Semel. When that process
// is killed, it is closed and another one opened for the next process. Whatever the dead
// process has sent is in the ledger then, or never will be, so that an operator can say
// which of its calls had an effect.
type entrance struct {
	handler http.Handler
	mu      sync.Mutex
	server  *http.Server // nil before the first process
}

// ServeHTTP closes the entrance, and answers with the address of the next one.
func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		// It waits for requests that were read. Their connections have ended with the
		// process, so none waits for its answer.
		if err := e.server.Shutdown(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	server := &http.Server{Handler: e.handler, ReadHeaderTimeout: 10 * time.Second}
	e.server = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close() // the next request to it fails, and the tour with it
		}
	}()
	writeJSON(w, http.StatusOK, stage.Address{URL: "http://" + listener.Addr().String()})
}
