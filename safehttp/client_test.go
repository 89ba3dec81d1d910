package safehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/safehttp"
)

func ask(t *testing.T, c *safehttp.Client, at string) (*safehttp.Answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(r)
}

func TestNothingGoesElsewhere(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	asked := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer asked.Close()
	if a, err := ask(t, &safehttp.Client{}, asked.URL+"?token=secret"); err != nil || a.Status != http.StatusFound {
		t.Error(a, err)
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	if safehttp.Direct(nil).Proxy != nil {
		t.Error("a proxy of the environment is used")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "eleven byte") }))
	defer srv.Close()
	if a, err := ask(t, &safehttp.Client{MaxAnswer: 11}, srv.URL); err != nil || string(a.Body) != "eleven byte" {
		t.Error(a, err)
	}
	if _, err := ask(t, &safehttp.Client{MaxAnswer: 10}, srv.URL); err == nil || err.Error() != "the answer is larger than 10 bytes" {
		t.Error(err)
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	if _, err := ask(t, &safehttp.Client{Timeout: 1}, hangs.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestErrorsSayNothingOfTheAnswer(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nLocation: /a\rSet-Cookie: poison=1\r\n\r\n", "poison\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: poison\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\npoison\r\n",
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
			c.Close()
		}()
		_, err = ask(t, &safehttp.Client{}, "http://"+ln.Addr().String()+"/?token=secret")
		if err == nil || strings.Contains(err.Error(), "poison") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", answer, err)
		}
		ln.Close()
	}
	if err := safehttp.Quiet(&url.Error{Op: "Get", URL: "http://x/?token=secret", Err: io.EOF}); err != io.EOF {
		t.Error(err)
	}
}
