package semelproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
)

// brokenUpstream accepts connections and gives each to serve, which may do with it
// what it wants. It counts them.
type brokenUpstream struct {
	net.Listener
	conns atomic.Int64
}

func newBrokenUpstream(t *testing.T, serve func(c net.Conn, in *bufio.Reader)) *brokenUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &brokenUpstream{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return u
}

func (u *brokenUpstream) url() string { return "http://" + u.Addr().String() }

// readHead reads a request's head and nothing of its body.
func readHead(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "\r\n" {
			return
		}
	}
}

// readAll reads a request.
func readAll(in *bufio.Reader) {
	if r, err := http.ReadRequest(in); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// answering reads a request and sends text.
func answering(text string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		readAll(in)
		_, _ = io.WriteString(c, text)
	}
}

func TestAnUpstreamThatSaysNothingLeavesAnUnknownOutcome(t *testing.T) {
	clause.Proves(t, "IDS-IX.1")
	for _, c := range []struct {
		name   string
		serve  func(net.Conn, *bufio.Reader)
		status int
	}{
		{"it closes after a byte", func(_ net.Conn, in *bufio.Reader) { _, _ = in.ReadByte() }, 502},
		{"it closes after the head", func(_ net.Conn, in *bufio.Reader) { readHead(in) }, 502},
		{"it closes in the middle of the body", func(_ net.Conn, in *bufio.Reader) {
			readHead(in)
			_, _ = io.CopyN(io.Discard, in, 10)
		}, 502},
		{"it closes after the body", func(_ net.Conn, in *bufio.Reader) { readAll(in) }, 502},
		{"it closes in the answer's first line", answering("HTTP/1.1 20"), 502},
		{"it closes in the answer's head", answering("HTTP/1.1 200 OK\r\nContent-Type: text"), 502},
		{"it closes after an informational answer", answering("HTTP/1.1 103 Early Hints\r\n\r\n"), 502},
		{"it closes in the answer's body", answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123"), 502},
		{"it closes in a chunk", answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), 502},
		{"it closes before the last chunk", answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"), 502},
		{"it closes in JSON that nothing else ends", answering("HTTP/1.0 201 Created\r\nContent-Type: application/hal+json\r\n\r\n{\"id\":[\"1\", \"}]\\\""), 502},
		{"it closes in the body of a failure", answering("HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\n123"), 502},
		{"it answers with a status that is none", answering("HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"), 502},
		{"it does not speak HTTP", answering("220 mail.example ESMTP\r\n"), 502},
		{"it changes the protocol unasked", answering("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"), 502},
		{"it does not answer in time", func(_ net.Conn, in *bufio.Reader) {
			readAll(in)
			_, _ = in.ReadByte() // until the proxy gives up
		}, 504},
		{"it does not end its answer in time", func(c net.Conn, in *bufio.Reader) {
			answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123")(c, in)
			_, _ = in.ReadByte()
		}, 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			up := newBrokenUpstream(t, c.serve)
			w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.Route.Timeout = 2 * time.Second })
			body := strings.Repeat("x", 256<<10)
			first := w.send("POST", "/charges", "k1", body)
			first.want(t, c.status, `"code":"unknown"`)
			if first.Header.Get("Link") == "" || !strings.Contains(first.body, "status_url") {
				t.Errorf("no link to the status in %v %q", first.Header, first.body)
			}
			w.send("POST", "/charges", "k1", body).want(t, 409, `"code":"held"`)
			if n := up.conns.Load(); n != 1 {
				t.Errorf("the upstream was called %d times, want 1", n)
			}
		})
	}
}

// An answer that breaks off leaves an unknown outcome also where the request comes from no
// server of net/http, and although its status says that nothing was done.
func TestAnAnswerThatBreaksOffIsUnknownWithoutAServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head   string
		hangs  bool
		status int
	}{
		"it closes in a success":  {head: "200 OK", status: 502},
		"it closes in a refusal":  {head: "503 No\r\nRetry-After: 1", status: 502},
		"it does not end in time": {head: "503 No\r\nRetry-After: 1", hangs: true, status: 504},
	} {
		t.Run(name, func(t *testing.T) {
			up := newBrokenUpstream(t, func(conn net.Conn, in *bufio.Reader) {
				answering("HTTP/1.1 "+c.head+"\r\nContent-Length: 10\r\n\r\n123")(conn, in)
				if c.hangs {
					_, _ = in.ReadByte()
				}
			})
			w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) {
				o.EffectHeader, o.Route.Timeout = "X-Effect-Key", time.Second
			})
			for _, status := range []int{c.status, 409} {
				r := httptest.NewRequest("POST", "http://shop.example/charges", strings.NewReader("one"))
				r.RemoteAddr = "127.0.0.1:1"
				r.Header.Set("Idempotency-Key", "k1")
				r.Header.Set("Authorization", "Bearer x")
				got := httptest.NewRecorder()
				w.proxy.ServeHTTP(got, r)
				if got.Code != status {
					t.Errorf("got %d %s, want %d", got.Code, got.Body, status)
				}
			}
			if n := up.conns.Load(); n != 1 {
				t.Errorf("the upstream was called %d times, want 1", n)
			}
		})
	}
}

// An upstream that refuses a stream has promised that it did nothing with it.
func TestARefusedStreamIsRefuted(t *testing.T) {
	const refused, internal = 7, 2
	for _, c := range []struct {
		code   byte
		first  string
		second int
	}{{refused, `"code":"upstream_unreachable"`, 200}, {internal, `"code":"unknown"`, 409}} {
		t.Run(fmt.Sprint("code ", c.code), func(t *testing.T) {
			var streams atomic.Int64
			up := newBrokenUpstream(t, func(conn net.Conn, in *bufio.Reader) {
				_, _ = io.CopyN(io.Discard, in, 24) // the preface
				_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
				for {
					var head [9]byte // of a frame: its length, type, flags and stream
					if _, err := io.ReadFull(in, head[:]); err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, in, int64(head[1])<<8|int64(head[2])); err != nil {
						return
					}
					stream := head[5:]
					switch whole := head[4]&1 != 0; {
					case head[3] > 1 || !whole: // neither DATA nor HEADERS that end the request
					case streams.Add(1) == 1:
						_, _ = conn.Write(append(append([]byte{0, 0, 4, 3, 0}, stream...), 0, 0, 0, c.code))
					default: // 200
						_, _ = conn.Write(append(append([]byte{0, 0, 1, 1, 5}, stream...), 0x88))
					}
				}
			})
			w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.Transport.Protocol = semelproxy.ProtocolH2C })
			defer w.proxy.Close() // its connection
			w.send("POST", "/charges", "k1", "one").want(t, 502, c.first)
			w.send("POST", "/charges", "k1", "one").want(t, c.second, "")
			if n, want := streams.Load(), map[bool]int64{true: 2, false: 1}[c.second == 200]; n != want {
				t.Errorf("the upstream got %d requests, want %d", n, want)
			}
		})
	}
}

func TestNothingSentIsRefuted(t *testing.T) {
	for _, ledger := range []string{"", "X-Effect-Key"} {
		t.Run("nobody listens, with the effect header "+ledger, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			_ = l.Close()
			w := newWorld(t, "http://"+addr, func(_ *world, o *semelproxy.Options) { o.EffectHeader = ledger })
			for range 2 {
				first := w.send("POST", "/charges", "k1", "one")
				first.want(t, 502, `"code":"upstream_unreachable"`)
				if first.Header.Get("Retry-After") != "1" {
					t.Errorf("headers %v", first.Header)
				}
			}
			if l, err = net.Listen("tcp", addr); err != nil {
				t.Fatalf("the port was taken by another program: %v", err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "done") })}
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(l) })
			defer wg.Wait()
			defer srv.Close()
			w.send("POST", "/charges", "k1", "one").want(t, 200, "done")
		})
	}
	t.Run("the TLS handshake fails", func(t *testing.T) {
		up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) { _, _ = in.ReadByte() })
		w := newWorld(t, strings.Replace(up.url(), "http:", "https:", 1), nil)
		w.send("POST", "/charges", "k1", "one").want(t, 502, `"code":"upstream_unreachable"`)
		w.send("POST", "/charges", "k1", "one").want(t, 502, `"code":"upstream_unreachable"`)
		if n := up.conns.Load(); n != 2 {
			t.Errorf("%d handshakes, want 2", n)
		}
	})
}

func TestAbandonedCallsRunAgainWhereTheOperationSaysSo(t *testing.T) {
	up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) { readAll(in) })
	w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.Route.Operation.OnAbandoned = semel.RetryAbandoned })
	w.send("POST", "/charges", "k1", "one").want(t, 502, `"code":"unknown"`)
	w.send("POST", "/charges", "k1", "one").want(t, 502, `"code":"unknown"`)
	if n := up.conns.Load(); n != 2 {
		t.Errorf("the upstream was called %d times, want 2", n)
	}
}

// A reload may declare a ledger between the making of a proxy and a claim. The claim has promised
// it then, so the proxy keeps it; otherwise it would prove that nothing was sent.
func TestTheClaimSaysWhetherThereIsALedger(t *testing.T) {
	up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) { readAll(in) })
	w := newWorld(t, up.url(), nil)
	op, _ := w.engine.Internal().Operation("payments.charge")
	op.Effects = []string{semelproxy.UpstreamEffect}
	if err := w.engine.Register(op); err != nil {
		t.Fatal(err)
	}
	w.send("POST", "/charges", "k1", "one").want(t, 502, `"code":"unknown"`)
	w.send("POST", "/charges", "k1", "one").want(t, 409, `"code":"held"`)
	if n := up.conns.Load(); n != 1 {
		t.Errorf("the upstream was called %d times, want 1", n)
	}
}

func TestAKeptConnectionThatBreaksIsNotSentOnAgain(t *testing.T) {
	clause.Proves(t, "G-SENT")
	// The second request on a connection is read and not answered. net/http by
	// itself would send it again on a new connection, as it has a key.
	var requests atomic.Int64
	up := newBrokenUpstream(t, func(c net.Conn, in *bufio.Reader) {
		for n := range 2 {
			if _, err := in.Peek(1); err != nil {
				return
			}
			requests.Add(1)
			readAll(in)
			if n == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
			}
		}
	})
	w := newWorld(t, up.url(), nil)
	w.send("POST", "/charges", "k1", "one").want(t, 200, "done")
	w.send("POST", "/charges", "k2", "two").want(t, 502, `"code":"unknown"`)
	if requests.Load() != 2 || up.conns.Load() != 1 {
		t.Errorf("%d requests on %d connections, want 2 on 1", requests.Load(), up.conns.Load())
	}
	// Nor is one without a body, which net/http can send again without being asked.
	w.send("POST", "/charges", "k3", "").want(t, 200, "done")
	w.send("POST", "/charges", "k4", "").want(t, 502, `"code":"unknown"`)
	if requests.Load() != 4 {
		t.Errorf("%d requests, want 4", requests.Load())
	}
}

func TestAStreamThatBreaksIsCutForTheCaller(t *testing.T) {
	up := newBrokenUpstream(t, answering("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"))
	w := newWorld(t, up.url(), nil)
	a := w.send("POST", "/charges", "k1", "one")
	if a.StatusCode != 200 || a.body != "data: 1\n\n" || a.err == nil {
		t.Errorf("got %d %q, %v; want a body that breaks off", a.StatusCode, a.body, a.err)
	}
	w.send("POST", "/charges", "k1", "one").want(t, 409, `"code":"held"`)
	if n := up.conns.Load(); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

func TestAClientThatHangsUpStopsNothing(t *testing.T) {
	for _, size := range []int{4, 1 << 20} { // kept, and passed through
		t.Run(fmt.Sprintf("an answer of %d bytes", size), func(t *testing.T) {
			arrived, release := make(chan struct{}), make(chan struct{})
			up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
				close(arrived)
				<-release
				if r.Context().Err() != nil {
					t.Error("the upstream call was cancelled")
				}
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			})
			w := newWorld(t, up.URL, nil)
			ctx, hangUp := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "POST", w.url+"/charges", strings.NewReader("one"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k1")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if resp, err := w.client.Do(r); err == nil {
					resp.Body.Close()
				}
			}()
			<-arrived
			hangUp()
			<-gone
			close(release)
			a := w.send("POST", "/charges", "k1", "one", "Prefer: wait=20")
			if size == 4 {
				a.want(t, 200, "xxxx")
			} else {
				a.want(t, 410, "result_not_kept")
			}
			if up.count() != 1 {
				t.Errorf("%d upstream hits", up.count())
			}
		})
	}
}

// What was sent can't be called back, so the answer is waited for, also when another
// node has declared the call held meanwhile.
func TestALostLeaseDoesNotLoseTheUpstreamsAnswer(t *testing.T) {
	for name, size := range map[string]int{"one that is kept": 4, "one that is too large to be kept": 2000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, _ int) {
				close(arrived)
				select {
				case <-release:
				case <-r.Context().Done():
					t.Error("the upstream call was cancelled")
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			})
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				o.Route.Operation.Lease, o.Route.Operation.MaxResult = 2*time.Second, 1000
			})
			got := make(chan reply, 1)
			go func() { got <- w.send("POST", "/charges", "k1", "one") }()
			<-arrived
			w.store.switchTo(true)
			<-w.lost // the lease could not be renewed
			w.store.switchTo(false)
			w.send("POST", "/charges", "k1", "one", "Prefer: wait=20").want(t, 409, "held")
			close(release)
			(<-got).want(t, 201, strings.Repeat("x", size))
			again := w.send("POST", "/charges", "k1", "one")
			if size == 4 {
				again.want(t, 201, "xxxx")
			} else {
				again.want(t, 410, "result_not_kept")
			}
			if up.count() != 1 {
				t.Errorf("%d upstream hits", up.count())
			}
		})
	}
}

func TestAStoreThatIsDownSendsNothing(t *testing.T) {
	clause.Proves(t, "G-CLOSED")
	t.Parallel()
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, nil)
	w.store.switchTo(true)
	w.send("POST", "/charges", "k1", "one").want(t, 503, "store_unavailable")
	w.store.switchTo(false)
	if up.count() != 0 {
		t.Errorf("%d upstream hits", up.count())
	}
	// The claim that failed may have been made; sending again tells.
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
}

func TestUnguardedRequestsFailPlainly(t *testing.T) {
	t.Parallel()
	up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) {
		readAll(in)
		_, _ = in.ReadByte()
	})
	w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) {
		o.Route.Timeout, o.Route.Key = 2*time.Second, semelhttp.KeyOptional
	})
	w.send("GET", "/charges", "", "").want(t, 504, `"code":"unknown"`)
	w.send("PUT", "/charges", "", "one").want(t, 504, `"code":"unknown"`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) != 2 || !strings.Contains(w.errs[0].Error(), "did not answer in time") {
		t.Errorf("told of %v", w.errs)
	}
}

// What is told of an upstream that speaks no HTTP has nothing of what it said.
func TestErrorsSayNothingOfAnswers(t *testing.T) {
	for _, answer := range []string{"poison\r\n\r\n", "HTTP/1.1 200 OK\r\nLocation: /a\rSet-Cookie: poison=1\r\n\r\n"} {
		up := newBrokenUpstream(t, func(c net.Conn, in *bufio.Reader) {
			readAll(in)
			_, _ = io.WriteString(c, answer)
		})
		w := newWorld(t, up.url(), nil)
		w.send("POST", "/charges", "k1", "one").want(t, 502, "unknown")
		w.mu.Lock()
		if len(w.errs) != 1 || strings.Contains(w.errs[0].Error(), "poison") {
			t.Errorf("told of %v", w.errs)
		}
		w.mu.Unlock()
	}
}
