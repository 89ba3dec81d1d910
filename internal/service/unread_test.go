package service_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// deaf is a caller who sends and doesn't read, and whose system buffers little.
func deaf(t *testing.T, s *running, text string) {
	t.Helper()
	c, err := net.Dial("tcp", s.DataAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func request(key string) string {
	return fmt.Sprintf("POST /report HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", key)
}

// serveReports starts a service in front of an upstream that answers with so many bytes.
func serveReports(t *testing.T, size int, more string) (<-chan struct{}, *running) {
	t.Helper()
	asked := make(chan struct{}, 8)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_, _ = w.Write(make([]byte, size))
	}))
	t.Cleanup(upstream.Close)
	return asked, start(t, write(t, "store: {url: 'memory:'}\noperations: [{name: report, in_flight: wait, max_wait: 5m}]\n"+
		"routes: [{match: POST /report, operation: report, upstream: "+upstream.URL+", anonymous: share, timeout: 4s}]\n"+more))
}

func TestConnectionsOfThoseWhoDoNotReadAreFreed(t *testing.T) {
	t.Parallel()
	_, s := serveReports(t, 200<<10, "limits: {connections: 2, rate: 1KiB, rate_grace: 200ms}\n")
	if status, _, _ := do(t, "POST", s.data("/report"), "{}", "Idempotency-Key", "a", "Connection", "close"); status != 200 {
		t.Fatal(status)
	}
	for range 2 {
		deaf(t, s, strings.Repeat(request("a"), 60))
	}
	// There is no connection left for this one until another has ended.
	if status, header, text := do(t, "POST", s.data("/report"), "{}", "Idempotency-Key", "a"); status != 200 || header.Get("Idempotency-Replayed") != "true" || len(text) != 200<<10 {
		t.Error(status, header, len(text))
	}
}

func TestAnAnswerThatNobodyReadsIsRecorded(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]string{
		"the caller is slower than it may be": "limits: {rate: 1KiB, rate_grace: 200ms}\n",
		"the time of the call is over":        "limits: {rate: 0, read_timeout: 10m}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, s := serveReports(t, 16<<20, limits)
			deaf(t, s, request("big"))
			<-asked
			// This one waits for the end of the first.
			status, _, text := do(t, "POST", s.data("/report"), "{}", "Idempotency-Key", "big", "Prefer", "wait=300")
			if status != 410 || !strings.Contains(text, "result_not_kept") {
				t.Error(status, text)
			}
		})
	}
}

func TestStopDoesNotWaitForThoseWhoDoNotRead(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		_, _ = w.Write(make([]byte, 16<<20))
	}))
	defer upstream.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\nlimits: {rate: 0, shutdown_grace: 100ms}\n"+
		"routes: [{match: /, operation: default, upstream: "+upstream.URL+", anonymous: share, timeout: 10m}]\n"))
	deaf(t, s, request("big"))
	<-begun
	s.stop()
	if err := <-s.done; err != nil {
		t.Error("not every outcome was recorded:", err)
	}
	s.done <- nil
}

// All connections together have no more requests than there may be connections.
func TestRequestsOfManyStreamsAreBounded(t *testing.T) {
	begun, end := make(chan struct{}, 16), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-end
	}))
	defer upstream.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\nlimits: {connections: 3}\n"+
		"routes: [{match: /, operation: default, upstream: "+upstream.URL+", mode: 'off', anonymous: share}]\n"))
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	send := func(tr *http.Transport) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.data("/"), nil)
		if err != nil {
			t.Error(err)
			return nil, err
		}
		resp, err := tr.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	answers := make(chan int, 4)
	for range 2 { // two connections with two streams each
		tr := &http.Transport{Protocols: h2, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
		defer tr.CloseIdleConnections()
		for range 2 {
			go func() {
				resp, err := send(tr)
				if err != nil {
					t.Error(err)
					answers <- 0
					return
				}
				answers <- resp.StatusCode
			}()
		}
	}
	for range 3 {
		<-begun
	}
	if status := <-answers; status != http.StatusServiceUnavailable {
		t.Error("one request more than there may be:", status)
	}
	close(end)
	for range 3 {
		if status := <-answers; status != http.StatusOK {
			t.Error(status)
		}
	}
}

func TestOneConnectionHasAsManyStreamsAsItMay(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\n"))
	c, err := net.Dial("tcp", s.DataAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || head[3] != 4 {
		t.Fatal("no SETTINGS:", head, err)
	}
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(r, settings); err != nil {
		t.Fatal(err)
	}
	for ; len(settings) >= 6; settings = settings[6:] {
		if settings[1] == 3 && settings[5] == 100 {
			return
		}
	}
	t.Error("SETTINGS do not have the 100 streams")
}
