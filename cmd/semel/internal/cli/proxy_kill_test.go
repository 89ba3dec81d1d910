package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/safehttp"
)

var killRounds = flag.Int("kill-rounds", 100, "how often the proxy is killed by make prove; a fifth of it otherwise")

// startProxy starts 'semel proxy' in a process of its own.
func startProxy(t *testing.T, exe, upstream string, args ...string) *stage.Process {
	t.Helper()
	return startProxyIn(t, "", exe, upstream, args...)
}

// startProxyIn starts it in a directory, which is where its store is by default. The
// flags that are always there choose a free port, and tell it.
func startProxyIn(t *testing.T, dir, exe, upstream string, args ...string) *stage.Process {
	t.Helper()
	cmd := exec.Command(exe, append([]string{"proxy", upstream, "--listen", "127.0.0.1:0", "--json"}, args...)...)
	cmd.Dir = dir
	p, err := stage.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// received is an answer that a client got whole.
type received struct {
	status int
	body   string
}

// sender sends orders, each under a key of its own and as often as it likes.
type sender struct {
	client *http.Client
	url    string
}

func (s *sender) send(ctx context.Context, key string) (received, bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/orders", strings.NewReader("order "+key))
	if err != nil {
		return received{}, false, err
	}
	r.Header.Set("Idempotency-Key", key)
	resp, err := s.client.Do(r)
	if err != nil {
		return received{}, false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return received{}, false, err
	}
	return received{resp.StatusCode, string(body)}, resp.Header.Get("Idempotency-Replayed") == "true", nil
}

// TestKilledProxies kills the proxy at random moments under load. No order may
// reach the upstream twice, and every answer that a client has got is what it gets
// after the restart, byte for byte.
func TestKilledProxies(t *testing.T) {
	t.Parallel()
	exe := program(t)
	rounds := thorough.Scaled(*killRounds)
	book := &stage.Upstream{}
	upstream := httptest.NewServer(book)
	defer upstream.Close()
	dir := "pebble:" + t.TempDir()
	transport := &safehttp.Transport{Base: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}}
	var mu sync.Mutex
	known := map[string]received{}
	var inDoubt []string
	acknowledged, checked, held := 0, 0, 0

	for round := range rounds {
		p := startProxy(t, exe, upstream.URL, "--store", dir, "--lease", "300ms")
		s := &sender{client: &http.Client{Transport: transport}, url: p.URL}
		// What was known before this start, and what was not.
		for key, want := range known {
			got, replayed, err := s.send(t.Context(), key)
			if err != nil || got != want || !replayed {
				t.Fatalf("round %d: order %s got %d %q and now %d %q, replayed %v, %v", round, key, want.status, want.body, got.status, got.body, replayed, err)
			}
			checked++
		}
		clear(known)
		for _, key := range inDoubt {
			got, _, err := s.send(t.Context(), key)
			if err != nil || got.status != http.StatusCreated && got.status != http.StatusConflict {
				t.Fatalf("round %d: order %s in doubt got %d %s, %v", round, key, got.status, got.body, err)
			}
			if got.status == http.StatusConflict {
				held++
			}
		}
		inDoubt = inDoubt[:0]

		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan struct{}) // closed when an order has come to an end
		begin := sync.OnceFunc(func() { close(begun) })
		var senders sync.WaitGroup
		for i := range 16 {
			senders.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Sprintf("r%d-s%d-n%d", round, i/2, n) // two senders share their keys
					got, _, err := s.send(ctx, key)
					mu.Lock()
					if err != nil {
						inDoubt = append(inDoubt, key)
					} else if got.status == http.StatusCreated {
						known[key] = got
						acknowledged++
					}
					mu.Unlock()
					if err != nil || got.status == http.StatusCreated {
						begin()
					}
					if err != nil {
						return
					}
				}
			})
		}
		// A slow machine may not come to an end of anything in the time that follows.
		if round%2 == 0 {
			<-begun
		}
		timer := time.NewTimer(time.Duration(5+rand.IntN(60)) * time.Millisecond)
		<-timer.C
		p.Kill()
		stop()
		senders.Wait()
	}
	twice, done := book.Repeated(), book.Len()
	if len(twice) > 0 {
		t.Errorf("%d of %d orders reached the upstream more than once: %q", len(twice), done, twice)
	}
	if acknowledged < rounds/2 || checked == 0 || held == 0 {
		t.Errorf("the load was no test: %d acknowledged, %d replayed after a restart, %d held", acknowledged, checked, held)
	}
	t.Logf("%d kills; %d orders reached the upstream, none twice; %d answers replayed byte for byte after a restart; %d orders held or in flight", rounds, done, checked, held)
}

// TestProxyDeduplicates is the promise of the one-liner.
func TestProxyDeduplicates(t *testing.T) {
	exe := program(t)
	book := &stage.Upstream{}
	upstream := httptest.NewServer(book)
	defer upstream.Close()
	p := startProxy(t, exe, upstream.URL, "--store", "pebble:"+t.TempDir())
	s := &sender{client: &http.Client{Transport: &safehttp.Transport{Base: &http.Transport{}}}, url: p.URL}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			got, _, err := s.send(t.Context(), "same")
			if err != nil || got.status != http.StatusCreated && got.status != http.StatusConflict {
				t.Errorf("%d %s, %v", got.status, got.body, err)
			}
		})
	}
	wg.Wait()
	if twice := book.Repeated(); len(twice) > 0 || book.Len() != 1 {
		t.Errorf("%d orders, twice: %q", book.Len(), twice)
	}
}
