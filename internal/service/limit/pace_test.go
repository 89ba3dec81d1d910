package limit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/internal/service/limit"
)

var pace = limit.Pace{Rate: 100, Grace: 2 * time.Second}

// limited is a connection of a listener with a pace, and its other end.
func limited(t *testing.T, pace limit.Pace) (server, client net.Conn) {
	t.Helper()
	q := newQueue()
	l := limit.Listener(q, 1, pace)
	client, far := net.Pipe()
	q.conns <- far
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		client.Close()
	})
	return server, client
}

func TestListenerEndsWritesThatNobodyReads(t *testing.T) {
	// write writes n bytes while the other end reads part of them every 900 ms.
	write := func(t *testing.T, pace limit.Pace, n, each int) (written int, took time.Duration, err error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			server, client := limited(t, pace)
			begun := time.Now()
			done := make(chan struct{})
			go func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(900 * time.Millisecond):
					}
					_, _ = io.ReadFull(client, make([]byte, each))
				}
			}()
			written, err = server.Write(make([]byte, n))
			took = time.Since(begun)
			close(done)
			client.Close()
		})
		return written, took, err
	}
	t.Run("one who reads fast enough gets everything, however long that takes", func(t *testing.T) {
		if n, took, err := write(t, pace, 3000, 120); n != 3000 || err != nil || took != 22500*time.Millisecond {
			t.Error(n, took, err)
		}
	})
	t.Run("one who reads nothing has the grace time", func(t *testing.T) {
		if n, took, err := write(t, pace, 3000, 0); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || took != pace.Grace {
			t.Error(n, took, err)
		}
	})
	t.Run("one who reads a few bytes is no better", func(t *testing.T) {
		if n, took, err := write(t, pace, 3000, 20); n > 40 || !errors.Is(err, os.ErrDeadlineExceeded) || took != pace.Grace {
			t.Error(n, took, err)
		}
	})
	t.Run("without a pace there is no end", func(t *testing.T) {
		if n, took, err := write(t, limit.Pace{}, 100, 1); n != 100 || err != nil || took != 90*time.Second {
			t.Error(n, took, err)
		}
	})
	t.Run("an earlier deadline counts, also while something is written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, _ := limited(t, pace)
			begun := time.Now()
			if err := server.SetWriteDeadline(begun.Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Write(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Second {
				t.Error(time.Since(begun), err)
			}
			if err := server.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			begun = time.Now()
			time.AfterFunc(time.Second/2, func() { _ = server.SetWriteDeadline(begun) })
			if _, err := server.Write(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Second/2 {
				t.Error(time.Since(begun), err)
			}
		})
	})
}

func TestStreamsEndWhereNobodyReads(t *testing.T) {
	t.Parallel()
	type ended struct {
		n   int
		err error
	}
	stuck := make(chan ended, 1)
	pace := limit.Pace{Rate: 100 << 10, Grace: 2 * time.Second}
	handler := pace.Streams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/large" {
			_, _ = io.WriteString(w, "served")
			return
		}
		n, err := w.Write(make([]byte, 8<<20))
		stuck <- ended{n, err}
	}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	tr := &http.Transport{Protocols: srv.Protocols}
	defer tr.CloseIdleConnections()
	get := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	large := get("/large")
	defer large.Body.Close()
	if e := <-stuck; e.err == nil || e.n == 8<<20 {
		t.Error("the whole of an answer that nobody reads was written:", e.n, e.err)
	}
	// The connection goes on, and a stream that is read doesn't end.
	resp := get("/small")
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "served" || err != nil {
		t.Error(string(text), err)
	}
	if _, err := io.Copy(io.Discard, large.Body); err == nil {
		t.Error("the end of the stream looks like that of the answer")
	}
}

func TestBodiesHaveToCome(t *testing.T) {
	// post sends a head and then so many bytes each second, repeating the last of these
	// numbers, and returns the answer.
	post := func(t *testing.T, opts limit.Options, length string, each ...int) (status string, took time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(t, 0, 0)
			handler := b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
				}
			}), opts)
			q := newQueue()
			srv := &http.Server{Handler: handler}
			go func() { _ = srv.Serve(q) }()
			client, far := net.Pipe()
			q.conns <- far
			begun := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\n"+length+"\r\n\r\n")
				for i := 0; ctx.Err() == nil && each[i] > 0; i = min(i+1, len(each)-1) {
					<-time.After(time.Second)
					if _, err := client.Write([]byte(strings.Repeat("x", each[i]))); err != nil {
						return
					}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			status, took = resp.Status, time.Since(begun)
			cancel()
			client.Close()
			srv.Close()
			<-sent
		})
		return status, took
	}
	opts := limit.Options{Pace: pace}
	t.Run("one that comes fast enough may take its time", func(t *testing.T) {
		if status, took := post(t, opts, "Content-Length: 3000", 120); status != "200 OK" || took != 25*time.Second {
			t.Error(status, took)
		}
	})
	t.Run("one that does not come gets 408", func(t *testing.T) {
		if status, took := post(t, opts, "Content-Length: 3000", 0); status != "408 Request Timeout" || took != pace.Grace {
			t.Error(status, took)
		}
	})
	t.Run("one that comes in drops gets 408", func(t *testing.T) {
		if status, took := post(t, opts, "Content-Length: 3000", 20); status != "408 Request Timeout" || took > 2*pace.Grace {
			t.Error(status, took)
		}
	})
	opts.BodyTimeout = 7 * time.Second
	t.Run("one that takes long but keeps coming comes whole", func(t *testing.T) {
		if status, took := post(t, opts, "Content-Length: 3000", 120); status != "200 OK" || took != 25*time.Second {
			t.Error(status, took)
		}
	})
	t.Run("one that came fast may not stand still", func(t *testing.T) {
		// At its pace, what arrived would allow 1000 s.
		if status, took := post(t, opts, "Content-Length: 200000", 100000, 0); status != "408 Request Timeout" || took != 8*time.Second {
			t.Error(status, took)
		}
	})
	t.Run("nor come in drops", func(t *testing.T) {
		if status, took := post(t, opts, "Content-Length: 200000", 100000, 20); status != "408 Request Timeout" || took > 10*time.Second {
			t.Error(status, took)
		}
	})
	t.Run("where any pace will do it may not stand still either", func(t *testing.T) {
		opts := limit.Options{BodyTimeout: 7 * time.Second}
		if status, took := post(t, opts, "Content-Length: 20", 1); status != "200 OK" || took != 20*time.Second {
			t.Error(status, took)
		}
		if status, took := post(t, opts, "Content-Length: 20", 1, 0); status != "408 Request Timeout" || took != 8*time.Second {
			t.Error(status, took)
		}
	})
}

// A caller with HTTP/2 doesn't lose the stream because the handler takes long between two
// reads.
func TestStreamsWaitForTheirHandlers(t *testing.T) {
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	send := func(t *testing.T, wait time.Duration, body io.Reader) (status int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			handler := newBudget(t, 0, 0).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for {
					<-time.After(wait)
					if _, err := r.Body.Read(make([]byte, 10)); err == io.EOF {
						return
					} else if err != nil {
						http.Error(w, err.Error(), http.StatusBadRequest)
						return
					}
				}
			}), limit.Options{Pace: pace, BodyTimeout: 7 * time.Second})
			q := newQueue()
			srv := &http.Server{Handler: handler, Protocols: h2, ReadTimeout: 7 * time.Second}
			go func() { _ = srv.Serve(q) }()
			defer srv.Close()
			client, far := net.Pipe()
			q.conns <- far
			tr := &http.Transport{Protocols: h2, DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
			defer tr.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			status = resp.StatusCode
		})
		return status
	}
	if status := send(t, 20*time.Second, strings.NewReader("twenty bytes of body")); status != http.StatusOK {
		t.Error("one that is there, and read late:", status)
	}
	still := readerFunc(func([]byte) (int, error) {
		<-time.After(time.Hour)
		return 0, io.EOF
	})
	if status := send(t, time.Second, still); status != http.StatusRequestTimeout {
		t.Error("one that does not come:", status)
	}
}

// What a body announces takes nothing yet.
func TestAnnouncedBodiesTakeNothing(t *testing.T) {
	const share, callers = 64 << 10, 12
	b := limit.NewBudget(limit.Bounds{Total: 1 << 20, Tenant: share, Principal: share})
	begun, end := make(chan struct{}, callers), make(chan struct{})
	h := b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == share {
			begun <- struct{}{}
			<-end
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
	}), limit.Options{})
	done := make(chan struct{}, callers)
	for range callers {
		go func() {
			r, _ := http.NewRequest(http.MethodPost, "/", readerFunc(func([]byte) (int, error) { return 0, io.EOF }))
			r.ContentLength = share
			h.ServeHTTP(discard{http.Header{}}, r)
			done <- struct{}{}
		}()
		<-begun
	}
	if w := send(h, "", strings.NewReader(strings.Repeat("x", share-callers*4<<10))); w.Code != http.StatusOK {
		t.Error("a body that is there does not fit beside those that are not:", w.Code, w.Body)
	}
	close(end)
	for range callers {
		<-done
	}
	wantInFlight(t, b, 0, 0)
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func TestRequests(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	h := limit.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-end
	}), 2, limit.Options{TypeBase: "https://semel.example/problems/"})
	done := make(chan int, 2)
	for range 2 {
		go func() { done <- send(h, "", nil).Code }()
		<-begun
	}
	wantProblem(t, send(h, "", nil), http.StatusServiceUnavailable, "overloaded", "1")
	close(end)
	for range 2 {
		if status := <-done; status != http.StatusOK {
			t.Error(status)
		}
	}
	go func() { <-begun }()
	if w := send(h, "", nil); w.Code != http.StatusOK {
		t.Error("the places are not given back:", w.Code)
	}
}
