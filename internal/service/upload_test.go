package service_test

import (
	"github.com/semelhq/semel/internal/rig/stage"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// An upload may take longer than limits.read_timeout as long as it keeps coming, whether
// it has a key or not, and even if its route guards nothing.
func TestUploadsThatKeepComingArrive(t *testing.T) {
	const still = 3 * time.Second // less than this test needs, and far more than one of its bytes does
	for name, c := range map[string]struct{ mode, key string }{
		"guarded": {"enforce", "upload-1"}, "without a key": {"enforce", ""}, "not guarded": {"off", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				if err != nil || n < 2 {
					t.Error("the upstream got", n, err)
				}
			}))
			defer upstream.Close()
			s := start(t, write(t, "store: {url: 'memory:'}\nlimits: {rate: 1KiB, read_timeout: "+still.String()+", read_header_timeout: "+still.String()+"}\n"+
				"routes: [{match: /, operation: default, upstream: "+upstream.URL+", mode: '"+c.mode+"', anonymous: share, key: optional}]\n"))
			body, text := io.Pipe()
			go func() {
				chunk := make([]byte, 4<<10)
				tick := time.NewTicker(still / 30)
				defer tick.Stop()
				for begun := time.Now(); time.Since(begun) < still+still/10; <-tick.C {
					if _, err := text.Write(chunk); err != nil {
						return
					}
				}
				text.Close()
			}()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.data("/"), body)
			if err != nil {
				t.Fatal(err)
			}
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			resp, err := stage.Direct.Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || err != nil {
				t.Error(resp.Status, string(text), err)
			}
		})
	}
}
