package upgrade

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
)

// upstream does the work of every door. The last part of a path says what becomes of it, and
// it counts what it was asked for.
type upstream struct {
	URL  string
	mu   sync.Mutex
	hits map[string]int
	free chan struct{} // closed at the end, for requests that hang
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{hits: map[string]int{}, free: make(chan struct{})}
	server := httptest.NewServer(u)
	u.URL = server.URL
	t.Cleanup(func() {
		close(u.free)
		server.Close()
	})
	return u
}

func (u *upstream) asked() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]int{}
	maps.Copy(all, u.hits)
	return all
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was broken off, and asked for nothing
	}
	u.mu.Lock()
	u.hits[r.URL.Path]++
	n := u.hits[r.URL.Path]
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var call struct {
		ID      json.RawMessage
		JSONRPC string
		Params  struct {
			Message struct{ MessageID string }
		}
		Call struct{ Arguments struct{ What string } }
	}
	_ = json.Unmarshal(body, &call) // many have none
	what := path.Base(r.URL.Path)
	if call.Call.Arguments.What != "" {
		what = call.Call.Arguments.What
	}
	switch what {
	case "rejected":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case "failed":
		w.WriteHeader(http.StatusInternalServerError)
	case "aborted":
		w.WriteHeader(http.StatusUnauthorized)
	case "gone":
		w.WriteHeader(http.StatusGone)
	case "broken":
		panic(http.ErrAbortHandler) // nobody hears what became of it
	case "hangs":
		<-u.free
	}
	switch {
	case call.JSONRPC != "":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"id":"task-%d","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`, call.ID, n)
	case bytes.Contains(body, []byte(`"forrst"`)):
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":%s,"result":{"n":%d}}`, call.ID, n)
	default:
		fmt.Fprintf(w, `{"n":%d}`, n)
	}
}
