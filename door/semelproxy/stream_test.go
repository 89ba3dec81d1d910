package semelproxy_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// tape is an upstream that streams three events, and stops before the second one until it is
// released.
type tape struct {
	*testing.T
	*httptest.Server // the proxy
	runs             atomic.Int64
	release          chan struct{}
}

func newTape(t *testing.T, opts semel.Options, op semel.Operation) *tape {
	s := &tape{T: t, release: make(chan struct{})}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		var out io.Writer = w
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if r.URL.Path == "/gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		for i := range 3 {
			if i == 1 {
				<-s.release
			}
			_, _ = fmt.Fprintf(out, "id: %d\r\nevent: token\r\ndata: word %d\r\ndata:  and another\r\n\r\n: alive\n\n", i, i)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(up.Close)
	st := memstore.New()
	t.Cleanup(func() { _ = st.Close() })
	engine, err := semel.New(st, &opts)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream, _ := url.Parse(up.URL)
	op.Name = "op"
	p, err := semelproxy.New(guard, semelproxy.Options{Upstream: upstream, Route: semelhttp.Route{Operation: op}})
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s
}

// ask sends the request.
func (s *tape) ask(path string, header ...string) *http.Response {
	s.Helper()
	r, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.URL+path, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k-1")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// whole is a body to its end.
func (s *tape) whole(resp *http.Response) string {
	s.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Error(err)
	}
	return string(text)
}

// A stream that is cut in the middle and asked for again is byte for byte one that wasn't cut, while
// it runs and after its end, and the upstream was called once.
func TestStreamCutAndAskedAgain(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.2", "IDS-IX.1", "IDS-IX.3")
	s := newTape(t, semel.Options{}, semel.Operation{})
	close(s.release)
	want := s.whole(s.ask("/"))
	if strings.Count(want, "data: word") != 3 {
		t.Fatal(want)
	}

	s = newTape(t, semel.Options{}, semel.Operation{})
	first := s.ask("/")
	if _, err := bufio.NewReader(first.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = first.Body.Close()
	joined := s.ask("/")
	close(s.release)
	if got, how := s.whole(joined), joined.Header.Get(semelhttp.StreamHeader); got != want || how != semelhttp.StreamLive {
		t.Errorf("joined, %s: %q instead of %q", how, got, want)
	}
	for after, want := range map[string]string{"": want, "0": want[strings.Index(want, ": alive"):], "2": ": alive\n\n", "7": want} {
		again := s.ask("/", "Last-Event-ID", after)
		if got, how := s.whole(again), again.Header.Get(semelhttp.StreamHeader); got != want || how != semelhttp.StreamFinished {
			t.Errorf("after %q, %s: %q instead of %q", after, how, got, want)
		}
	}
	if n := s.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// A compressed stream passes as it is. It isn't recorded, because not all callers could read it, so
// duplicates are refused as for any answer that isn't kept.
func TestACompressedStreamIsNotRecorded(t *testing.T) {
	s := newTape(t, semel.Options{}, semel.Operation{})
	close(s.release)
	first := s.ask("/gzip", "Accept-Encoding", "gzip")
	plain, err := gzip.NewReader(first.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(plain); err != nil || strings.Count(string(text), "data: word") != 3 {
		t.Errorf("%s, %v", text, err)
	}
	if again := s.ask("/gzip", "Accept-Encoding", "gzip"); again.StatusCode != http.StatusGone || s.runs.Load() != 1 {
		t.Errorf("%s, %s", again.Status, s.whole(again))
	}
}

// What is recorded of a stream counts against its sender's quota. Beyond that nothing more is
// recorded, and the first caller gets all of it.
func TestARecordedStreamCountsAgainstTheQuota(t *testing.T) {
	for most, status := range map[int64]int{100: http.StatusGone, 10_000: http.StatusOK} {
		s := newTape(t, semel.Options{Quotas: semel.Quotas{Window: time.Hour, PrincipalBytes: most}}, semel.Operation{})
		close(s.release)
		if text := s.whole(s.ask("/")); strings.Count(text, "data: word") != 3 {
			t.Error(text)
		}
		if again := s.ask("/"); again.StatusCode != status || s.runs.Load() != 1 {
			t.Errorf("%d bytes: %s, %s", most, again.Status, s.whole(again))
		}
	}
}

// Authorize is asked for whoever joins a stream, as for a replay.
func TestJoiningAStreamNeedsAuthorization(t *testing.T) {
	var refuse atomic.Bool
	s := newTape(t, semel.Options{}, semel.Operation{Authorize: func(_ context.Context, _ semel.Call, rec store.Record) error {
		if refuse.Load() && rec.Fence > 0 {
			return errors.New("not any more")
		}
		return nil
	}})
	first := s.ask("/")
	if joined := s.ask("/"); joined.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamLive {
		t.Errorf("%s, %v", joined.Status, joined.Header)
	}
	refuse.Store(true)
	if got := s.ask("/"); got.StatusCode != http.StatusConflict || got.Header.Get(semelhttp.StreamHeader) != "" {
		t.Errorf("%s, %v", got.Status, got.Header)
	}
	close(s.release)
	s.whole(first)
	if got := s.ask("/"); got.StatusCode != http.StatusForbidden {
		t.Errorf("%s, %v", got.Status, got.Header)
	}
}
