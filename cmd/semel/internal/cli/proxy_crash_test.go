package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/safehttp"
)

// After a crash a call whose outcome is unknown is settled by the reconciler soon after
// its lease is over, as often as --reconcile-every says, and not when the next purge is due.
func TestACrashedProxyIsReconciledSoon(t *testing.T) {
	t.Parallel()
	exe := program(t)
	var charged atomic.Int64
	arrived, end := make(chan struct{}, 1), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reconcile" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"outcome":"completed","status":201,"body":"Y2hhcmdlZA=="}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		charged.Add(1)
		arrived <- struct{}{}
		<-end // the proxy dies before it has an answer
	}))
	defer upstream.Close()
	defer close(end)
	args := []string{"--store", "pebble:" + t.TempDir(), "--lease", "2s", "--reconcile", upstream.URL + "/reconcile", "--reconcile-every", "1s"}
	p := startProxy(t, exe, upstream.URL, args...)
	client := &http.Client{Transport: &safehttp.Transport{Base: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}}}
	first := make(chan error, 1)
	go func() {
		_, _, err := (&sender{client, p.URL}).send(t.Context(), "k")
		first <- err
	}()
	<-arrived
	p.Kill()
	if err := <-first; err == nil {
		t.Fatal("a killed proxy has answered")
	}
	p = startProxy(t, exe, upstream.URL, args...)
	// Half of the time until the next purge, for a machine that is very busy.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, replayed, err := (&sender{client, p.URL}).send(ctx, "k")
		if err != nil {
			t.Fatalf("no answer: %v\n%s", err, p.Quote())
		}
		if got.status == http.StatusCreated {
			if got.body != "charged" || !replayed {
				t.Errorf("got %+v, replayed %v", got, replayed)
			}
			break
		}
		if got.status != http.StatusConflict {
			t.Fatalf("got %+v", got)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after 30 seconds it is %+v\n%s", got, p.Quote())
		case <-time.After(100 * time.Millisecond):
		}
	}
	if n := charged.Load(); n != 1 {
		t.Errorf("charged %d times", n)
	}
}
