package semelproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
)

func TestAnUpgradePassesWhereTheRouteSaysSo(t *testing.T) {
	up := newBrokenUpstream(t, func(c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil || r.Header.Get("Upgrade") != "echo" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, in)
	})
	w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.Unguarded = []semelproxy.Kind{semelproxy.KindUpgrade} })
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("got %v, %v", resp, err)
	}
	// What follows is not HTTP, and nobody looks at it.
	const text = "Content-Length: 1\nTransfer-Encoding: chunked\n\n\x00\xff"
	got := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
		t.Errorf("echoed %q, %v", got, err)
	}
}

func TestAGRPCCallPassesWhereTheRouteSaysSo(t *testing.T) {
	up := newUpstream(t, startH2C, func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.WriteString(w, "message")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
	})
	w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
		o.Unguarded = []semelproxy.Kind{semelproxy.KindGRPC}
		o.Transport.Protocol = semelproxy.ProtocolH2C
		w.server.Protocols = new(http.Protocols)
		w.server.Protocols.SetHTTP1(true)
		w.server.Protocols.SetUnencryptedHTTP2(true)
	})
	tr := w.client.Transport.(*http.Transport)
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	for n := range 2 { // every delivery is sent on
		a := w.send("POST", "/shop.Charges/Create", "k1", "message", "Content-Type: application/grpc", "Te: trailers")
		a.want(t, 200, "message")
		if a.ProtoMajor != 2 || a.Trailer.Get("Grpc-Status") != "0" || a.Trailer.Get("Grpc-Message") != "fine" || a.Header.Get("Semel-Unguarded") != "grpc" || up.count() != n+1 {
			t.Errorf("got %s with trailers %v, and %d upstream hits", a.Proto, a.Trailer, up.count())
		}
	}
	if te := up.requests()[0].Header.Get("Te"); te != "trailers" {
		t.Errorf("the upstream got TE %q", te)
	}
}

// A gRPC answer says how the call ended in what follows it, which no replay has.
func TestAGuardedGRPCCallLeavesATombstone(t *testing.T) {
	for name, headOnly := range map[string]bool{"message and trailers": false, "nothing but a head": true} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, startH2C, func(w http.ResponseWriter, r *http.Request, n int) {
				w.Header().Set("Content-Type", "application/grpc+proto")
				if headOnly {
					w.Header().Set("Grpc-Status", "0")
					return
				}
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = io.WriteString(w, "message")
				w.Header().Set("Grpc-Status", "0")
			})
			w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
				o.Transport.Protocol = semelproxy.ProtocolH2C
				w.server.Protocols = new(http.Protocols)
				w.server.Protocols.SetHTTP1(true)
				w.server.Protocols.SetUnencryptedHTTP2(true)
			})
			tr := w.client.Transport.(*http.Transport)
			tr.Protocols = new(http.Protocols)
			tr.Protocols.SetUnencryptedHTTP2(true)
			headers := []string{"Content-Type: application/grpc", "Te: trailers"}
			a := w.send("POST", "/shop.Charges/Create", "k1", "message", headers...)
			if a.StatusCode != 200 || a.Header.Get("Grpc-Status")+a.Trailer.Get("Grpc-Status") != "0" {
				t.Errorf("got %d %v with trailers %v", a.StatusCode, a.Header, a.Trailer)
			}
			w.send("POST", "/shop.Charges/Create", "k1", "message", headers...).want(t, 410, "result_not_kept")
			if up.count() != 1 {
				t.Errorf("%d upstream hits", up.count())
			}
		})
	}
}

// A stream may last longer than its route's time, as long as something comes.
func TestAStreamIsNotCutOffWhileItGoesOn(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	stalled := make(chan struct{})
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Content-Type", "text/event-stream")
		for end := time.After(3 * limit); ; {
			select {
			case <-end:
				<-stalled
				return
			case <-time.Tick(limit / 50):
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
	defer close(stalled)
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Route.Timeout = limit })
	began := time.Now()
	a := w.send("POST", "/events", "k1", "one", "Accept: text/event-stream")
	if took := time.Since(began); a.StatusCode != 200 || a.err == nil || took < 3*limit {
		t.Errorf("got %d, %v after %v", a.StatusCode, a.err, took)
	}
	w.send("POST", "/events", "k1", "one").want(t, 409, `"code":"held"`)
	if up.count() != 1 {
		t.Errorf("%d upstream hits", up.count())
	}
}

// A mode that passes everything says so to who sent a key.
func TestModesThatPassEverythingSaySo(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		w.WriteHeader(http.StatusEarlyHints) // after which ReverseProxy forgets what was set
		run(w, r, n)
	})
	for _, mode := range []semelproxy.Mode{semelproxy.ModeOff, semelproxy.ModeShadow} {
		w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Mode = mode })
		for method, want := range map[string]string{"POST": string(mode), "DELETE": string(mode), "GET": ""} {
			if got := w.send(method, "/charges", "k1", "").Header.Get("Semel-Unguarded"); got != want {
				t.Errorf("%s: %s is answered with %q", mode, method, got)
			}
		}
		if got := w.send("POST", "/charges", "", "one").Header.Get("Semel-Unguarded"); got != "" {
			t.Errorf("%s: a request without a key is answered with %q", mode, got)
		}
	}
}

// HTTP/2 lets a target have a space, where HTTP/1.1 would end it.
func TestATargetWithASpaceIsRefused(t *testing.T) {
	up := newUpstream(t, nil, run)
	for _, mode := range []semelproxy.Mode{semelproxy.ModeEnforce, semelproxy.ModeOff} {
		w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Mode = mode })
		r := httptest.NewRequest("POST", "/p", strings.NewReader("one"))
		r.URL.RawQuery, r.RequestURI = "a HTTP/1.1", "/p?a HTTP/1.1"
		r.Header.Set("Idempotency-Key", "k1")
		got := httptest.NewRecorder()
		w.proxy.ServeHTTP(got, r)
		if got.Code != 400 || !strings.Contains(got.Body.String(), "ambiguous_target") || up.count() != 0 {
			t.Errorf("%s: got %d %s and %d upstream hits", mode, got.Code, got.Body, up.count())
		}
	}
}

// An event stream arrives while it is being made.
func TestAStreamOfEventsIsNotHeldBack(t *testing.T) {
	for _, unguarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("unguarded is %t", unguarded), func(t *testing.T) {
			more := make(chan struct{})
			up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
				w.Header().Set("Content-Type", "text/event-stream")
				for range 3 {
					_, _ = io.WriteString(w, "data: 1\n")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-more:
					case <-r.Context().Done(): // the test has failed
						return
					}
				}
			})
			const accept = "text/event-stream"
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				if unguarded {
					o.Unguarded = []semelproxy.Kind{semelproxy.KindSSE}
				}
			})
			r, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/events", strings.NewReader("one"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", accept)
			r.Header.Set("Idempotency-Key", "k1")
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			for range 3 {
				if line, err := in.ReadString('\n'); err != nil || line != "data: 1\n" {
					t.Fatalf("got %q, %v", line, err)
				}
				more <- struct{}{}
			}
		})
	}
}

// An answer below 100 is none, also to a request without a key.
func TestAStatusThatIsNone(t *testing.T) {
	up := newBrokenUpstream(t, answering("HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"))
	w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.Route.Key = semelhttp.KeyOptional })
	for _, method := range []string{"GET", "POST"} {
		w.send(method, "/charges", "", "").want(t, 502, `"code":"unknown"`)
	}
}

// TestWhatKeepsComingIsNotLate: the time of the route counts from when the body last came, not
// from the beginning of the request. An upstream that then says nothing is late.
func TestWhatKeepsComingIsNotLate(t *testing.T) {
	const limit = 2 * time.Second // far more than a byte takes
	for name, want := range map[string]int{"/answered": http.StatusOK, "/silent": http.StatusGatewayTimeout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if n, err := io.Copy(io.Discard, r.Body); n != 35 || err != nil {
					t.Errorf("the upstream got %d bytes, %v", n, err)
				}
				if r.URL.Path == "/silent" {
					<-r.Context().Done()
				}
			}))
			defer up.Close()
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				o.Route.Timeout, o.Route.Key = limit, semelhttp.KeyOptional
			})
			body, text := io.Pipe()
			go func() {
				defer text.Close()
				for range 35 { // longer than the limit together
					if _, err := io.WriteString(text, "x"); err != nil {
						return
					}
					<-time.After(limit / 25)
				}
			}()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+name, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("got %s, want %d", resp.Status, want)
			}
		})
	}
}

// TestTrailersOfARequest that isn't guarded reach the upstream, if they were announced and are
// not Semel's own words. A guarded one has none: they are not part of what is compared.
func TestTrailersOfARequest(t *testing.T) {
	trailers := make(chan http.Header, 1)
	up := newUpstream(t, nil, func(_ http.ResponseWriter, r *http.Request, _ int) {
		_, _ = io.Copy(io.Discard, r.Body)
		trailers <- r.Trailer
	})
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Route.Key, o.EffectHeader = semelhttp.KeyOptional, "X-Effect"
	})
	for key, want := range map[string]string{"": "sum", "trailer-key-0001": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/upload", io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		r.Trailer = http.Header{"X-Check": {"sum"}, "X-Effect": {"forged"}}
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := <-trailers; got.Get("X-Check") != want || got.Get("X-Effect") != "" {
			t.Errorf("with the key %q the upstream gets %v", key, got)
		}
	}
}
