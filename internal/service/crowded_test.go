package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// TestTwoAtOnceRaiseTheAlert if you ask for that: the metric of the alert counts the key, and the
// figures list it.
func TestTwoAtOnceRaiseTheAlert(t *testing.T) {
	clause.Proves(t, "MAP-MON.6")
	began, end := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(began); <-end }))
	t.Cleanup(up.Close)
	s := start(t, write(t, `
store: {url: 'memory:'}
metrics: {crowded: 2}
operations: [{name: pay}]
routes: [{match: POST /pay, upstream: '`+up.URL+`', operation: pay}]
`))
	crowded := func() (bool, bool) {
		_, _, metrics := do(t, "GET", s.admin("/metrics"), "")
		_, _, figures := do(t, "GET", s.admin("/v1/figures?minutes=60"), "")
		return strings.Contains(metrics, `semel_crowded_keys_total{operation="pay"} 1`+"\n"), strings.Contains(figures, `"crowd":2`) && !strings.Contains(figures, `"crowded":[]`)
	}
	pay := func() int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.data("/pay"), strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Idempotency-Key", "0190163d-8694-739b-aea5-966c26f8ad91")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	var first sync.WaitGroup
	first.Go(func() { pay() })
	<-began
	if counted, listed := crowded(); counted || listed {
		t.Error("one delivery is a crowd")
	}
	if status := pay(); status != http.StatusConflict {
		t.Errorf("the second gets %d", status)
	}
	if counted, listed := crowded(); !counted || !listed {
		t.Errorf("counted: %t, listed: %t", counted, listed)
	}
	close(end)
	first.Wait()
}
