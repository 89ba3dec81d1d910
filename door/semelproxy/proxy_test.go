package semelproxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// run answers with the number of the execution.
func run(w http.ResponseWriter, _ *http.Request, n int) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Location", fmt.Sprintf("/charges/%d", n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d", n)
}

func TestDuplicatesGetTheFirstAnswer(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.1", "MAP-FLOW.2", "IDS-IX.1")
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL+"/v1", nil)
	first := w.send("POST", "/charges?b=2;c&a=%zz", "k1", "one")
	first.want(t, 201, "run 1")
	again := w.send("POST", "/charges?b=2;c&a=%zz", "k1", "one")
	again.want(t, 201, "run 1")
	if again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Location") != "/charges/1" || first.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("headers of the replay: %v", again.Header)
	}
	w.send("POST", "/charges?b=2;c&a=%zz", "k1", "two").want(t, 422, `"code":"conflict"`)
	w.send("POST", "/charges", "", "one").want(t, 400, `"code":"key_missing"`)
	w.send("POST", "/charges", "k2", "one").want(t, 201, "run 2")
	if r := up.requests()[0]; r.RequestURI != "/v1/charges?b=2;c&a=%zz" || r.body != "one" {
		t.Errorf("the upstream got %s with %q", r.RequestURI, r.body)
	}
	if n := up.count(); n != 2 {
		t.Errorf("the upstream was called %d times, want 2", n)
	}
}

func TestFiftyConcurrentEqualPostsAreOneUpstreamHit(t *testing.T) {
	clause.Proves(t, "IDS-IX.3", "IDS-XIII.2", "G-SENT")
	for _, protocol := range []semelproxy.Protocol{semelproxy.ProtocolHTTP1, semelproxy.ProtocolH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			release := make(chan struct{})
			up := newUpstream(t, startH2C, func(w http.ResponseWriter, r *http.Request, n int) {
				<-release
				run(w, r, n)
			})
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Transport.Protocol = protocol })
			const callers = 50
			var wg sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			refused := make(chan struct{}, callers)
			for range callers {
				wg.Go(func() {
					a := w.send("POST", "/charges", "k1", `{"amount":1}`)
					mu.Lock()
					statuses[a.StatusCode]++
					mu.Unlock()
					if a.StatusCode == http.StatusConflict {
						refused <- struct{}{}
					}
				})
			}
			for range callers - 1 { // all but the first are told that it is running
				<-refused
			}
			close(release)
			wg.Wait()
			if up.count() != 1 || statuses[201] != 1 || statuses[409] != callers-1 {
				t.Errorf("%d upstream hits, statuses %v", up.count(), statuses)
			}
			w.send("POST", "/charges", "k1", `{"amount":1}`).want(t, 201, "run 1")
			if up.count() != 1 {
				t.Errorf("%d upstream hits after a replay", up.count())
			}
		})
	}
}

func TestCallersThatWaitGetTheAnswer(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if a := w.send("POST", "/charges", "k1", "one", "Prefer: wait=30"); a.StatusCode != 201 || a.body != "run 1" {
				t.Errorf("got %d %q", a.StatusCode, a.body)
			}
		})
	}
	wg.Wait()
	if up.count() != 1 {
		t.Errorf("%d upstream hits", up.count())
	}
}

func startH2C(s *httptest.Server) {
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
}

func startHTTP2(s *httptest.Server) {
	s.EnableHTTP2 = true
	s.StartTLS()
}

func TestUpstreamProtocols(t *testing.T) {
	for _, c := range []struct {
		name     string
		protocol semelproxy.Protocol
		start    func(*httptest.Server)
		want     int
	}{
		{"HTTP/1.1", semelproxy.ProtocolAuto, startH2C, 1},
		{"HTTP/2 over TLS, negotiated", semelproxy.ProtocolAuto, startHTTP2, 2},
		{"HTTP/2 over TLS only", semelproxy.ProtocolHTTP2, startHTTP2, 2},
		{"HTTP/1.1 over TLS only", semelproxy.ProtocolHTTP1, startHTTP2, 1},
		{"HTTP/2 without TLS", semelproxy.ProtocolH2C, startH2C, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newUpstream(t, c.start, run)
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				o.Transport.Protocol = c.protocol
				if up.TLS != nil {
					o.Transport.TLS = up.Client().Transport.(*http.Transport).TLSClientConfig
				}
			})
			w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
			w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
			w.send("PUT", "/charges", "k0", "two").want(t, 201, "run 2")
			for _, r := range up.requests() {
				if r.ProtoMajor != c.want {
					t.Errorf("the upstream was asked over %s", r.Proto)
				}
			}
			// Without a body net/http would feel free to send it again.
			w.send("POST", "/charges", "k2", "").want(t, 201, "run 3")
			if r := up.requests()[2]; r.body != "" || r.Header.Get("Idempotency-Key") != "k2" {
				t.Errorf("the upstream got %q, %v", r.body, r.Header)
			}
		})
	}
}

func TestServingOverTLS(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	for _, h2 := range []bool{true, false} {
		t.Run(fmt.Sprintf("HTTP/2 is %t", h2), func(t *testing.T) {
			up := newUpstream(t, nil, run)
			w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
				w.server.TLSConfig = &tls.Config{Certificates: certs.TLS.Certificates}
			})
			tr := w.client.Transport.(*http.Transport)
			tr.TLSClientConfig = certs.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			tr.TLSClientConfig.NextProtos = nil
			tr.ForceAttemptHTTP2 = h2
			first := w.send("POST", "/charges", "k1", "one")
			first.want(t, 201, "run 1")
			if got := first.ProtoMajor == 2; got != h2 {
				t.Errorf("spoke %s", first.Proto)
			}
			w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
			if r := up.requests()[0]; r.Header.Get("X-Forwarded-Proto") != "https" {
				t.Errorf("X-Forwarded-Proto is %q", r.Header.Get("X-Forwarded-Proto"))
			}
		})
	}
	t.Run("ambiguous framing is found inside of TLS", func(t *testing.T) {
		up := newUpstream(t, nil, run)
		w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
			w.server.TLSConfig = &tls.Config{Certificates: certs.TLS.Certificates}
		})
		conn, err := tls.Dial("tcp", w.addr, certs.Client().Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), "ambiguous_framing") || !strings.Contains(string(got), `"action":"fix_request"`) || up.count() != 0 {
			t.Errorf("got %q and %d upstream hits", got, up.count())
		}
	})
}

func TestWhatTheUpstreamSees(t *testing.T) {
	up := newUpstream(t, nil, run)
	identity := func(r *http.Request) (string, string, error) { return "acme", "shop", nil }
	w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
		o.Identity, o.TenantHeader, o.PrincipalHeader = identity, "X-Tenant", "X-Principal"
		o.StripHeaders = []string{"X-Internal"}
		o.EffectHeader = "X-Effect-Key"
	})
	w.send("POST", "/charges", "k 1", "one").want(t, 400, "key_invalid")
	forged := []string{
		"X-Tenant: evil", "X-Principal: evil", "X-Internal: evil", "X-Effect-Key: evil", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6",
		"X-Real-Ip: 6.6.6.6", "X-Forwarded-User: evil", "Authorization: Bearer x", "X-Kept: yes", "X-Kept: twice", "Te: gzip",
		"X_Principal: evil", "X-Te_nant: fine", "x_internal: evil", "X_Forwarded_For: 6.6.6.6", "X-Forwarded_Proto: evil", "Idempotency_Key: evil",
		"X_Effect_Key: evil", "Transfer_Encoding: chunked", "Content_Length: 0", "X_Kept: too",
	}
	w.send("POST", "/charges", `"k1"`, "one", forged...).want(t, 201, "run 1")
	h := up.requests()[0].Header
	for name, want := range map[string]string{
		"Idempotency-Key": `"k1"`, "X-Tenant": "acme", "X-Principal": "shop", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http",
		"X-Forwarded-Host": w.addr, "Authorization": "Bearer x", "X-Kept": "yes,twice",
		"X-Internal": "", "Forwarded": "", "X-Real-Ip": "",
		"X_principal": "", "X_internal": "", "X_forwarded_for": "", "X-Forwarded_proto": "", "Idempotency_key": "", "X_effect_key": "",
		"Transfer_encoding": "", "Content_length": "", "X_kept": "too", "X-Te_nant": "fine", "X-Forwarded-User": "", "Te": "", "Connection": "", "Accept-Encoding": "",
	} {
		if got := strings.Join(h[name], ","); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if key := h.Get("X-Effect-Key"); len(key) < 20 || key == "evil" {
		t.Errorf("the effect key is %q", key)
	}
	if host := up.requests()[0].Host; host != w.addr {
		t.Errorf("Host is %q", host)
	}
	w.send("GET", "/charges", "", "", forged...).want(t, 201, "run 2")
	if h := up.requests()[1].Header; h.Get("X-Tenant") != "acme" || h.Get("X-Effect-Key") != "" || h.Get("X-Internal") != "" {
		t.Errorf("an unguarded request has %v", h)
	}
	t.Run("the upstream's own host can be sent", func(t *testing.T) {
		w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.PreserveHost = semelproxy.HostNever })
		w.send("GET", "/charges", "", "").want(t, 201, "run 3")
		if got := up.requests()[2].Host; "http://"+got != up.URL {
			t.Errorf("Host is %q", got)
		}
	})
}

// TestAGatewayGetsTheKeyThatWasMade: the same one in every attempt, whatever the client sends in
// its header, and nothing where no call is guarded.
func TestAGatewayGetsTheKeyThatWasMade(t *testing.T) {
	clause.Proves(t, "MAP-PAY.4", "MAP-PAY.1")
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		run(w, r, n)
	})
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.PassKey, o.Route.Operation.OnFailure = "idempotency-key", semel.RetryFailure
		o.Route.Key = semelhttp.KeyOptional
		o.Route.KeyTemplate = semelhttp.KeyTemplate{Template: "payment:{order_id}:{amount}", Values: map[string]string{"order_id": "json:/order", "amount": "json:/amount"}}
	})
	const asJSON = "Content-Type: application/json"
	const payment = `{"order":"o:1","amount":2999}`
	w.send("POST", "/charges", "", payment, asJSON).want(t, 500, "")
	w.send("POST", "/charges", "mine", payment, asJSON).want(t, 201, "run 2")
	w.send("POST", "/charges", "", payment, asJSON).want(t, 201, "run 2")
	w.send("POST", "/charges", "mine", `{"order":"o:1"}`, asJSON).want(t, 201, "run 3") // lacks what the key is made of
	var keys []string
	for _, r := range up.requests() {
		keys = append(keys, strings.Join(r.Header["Idempotency-Key"], ","))
	}
	if want := []string{"payment:o%3A1:2999", "payment:o%3A1:2999", "mine"}; !slices.Equal(keys, want) {
		t.Errorf("the gateway got the keys %q, want %q", keys, want)
	}
}

func TestAnswers(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("Etag", `"1"`)
			w.WriteHeader(304)
		case "/chunked":
			_, _ = io.WriteString(w, "one ")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "two")
		case "/trailers":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
		case "/hints":
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		case "/big":
			_, _ = io.WriteString(w, big)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "data: 2\n\n")
		case "/500":
			w.WriteHeader(500)
			fmt.Fprintf(w, "down %d", n)
		default:
			run(w, r, n)
		}
	})
	w := newWorld(t, up.URL, nil)
	t.Run("204 and 304 have no body and are replayed", func(t *testing.T) {
		for _, path := range []string{"/204", "/304"} {
			for range 2 {
				if a := w.send("POST", path, "k"+path[1:], "one"); fmt.Sprintf("/%d", a.StatusCode) != path || a.body != "" {
					t.Errorf("%s gave %d %q", path, a.StatusCode, a.body)
				}
			}
		}
	})
	t.Run("a chunked answer is kept", func(t *testing.T) {
		w.send("POST", "/chunked", "chunked", "one").want(t, 200, "one two")
		again := w.send("POST", "/chunked", "chunked", "one")
		again.want(t, 200, "one two")
		if again.ContentLength != 7 || again.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("length %d, headers %v", again.ContentLength, again.Header)
		}
	})
	t.Run("trailers go to the first caller", func(t *testing.T) {
		a := w.send("POST", "/trailers", "trailers", "one")
		a.want(t, 200, "body")
		if a.Trailer.Get("X-Sum") != "42" {
			t.Errorf("trailers %v", a.Trailer)
		}
		w.send("POST", "/trailers", "trailers", "one").want(t, 200, "body")
	})
	t.Run("early hints go to the first caller at once", func(t *testing.T) {
		hints := 0
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints += code; return nil },
		}), "POST", w.url+"/hints", strings.NewReader("one"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "hints")
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if hints != 103 || resp.StatusCode != 200 {
			t.Errorf("hints %d, status %d", hints, resp.StatusCode)
		}
	})
	t.Run("a large answer passes and leaves a tombstone", func(t *testing.T) {
		if a := w.send("POST", "/big", "big", "one"); a.StatusCode != 200 || a.body != big {
			t.Errorf("got %d with %d bytes", a.StatusCode, len(a.body))
		}
		w.send("POST", "/big", "big", "one").want(t, 410, "result_not_kept")
	})
	t.Run("an event stream passes and is recorded", func(t *testing.T) {
		w.send("POST", "/events", "events", "one", "Accept: application/json, text/event-stream").want(t, 200, "data: 1\n\ndata: 2\n\n")
		again := w.send("POST", "/events", "events", "one")
		again.want(t, 200, "data: 1\n\ndata: 2\n\n")
		if got := again.Header.Get(semelhttp.StreamHeader); got != semelhttp.StreamFinished {
			t.Errorf("a duplicate has the stream %q", got)
		}
	})
	t.Run("a failure is the upstream's answer, and the next delivery runs", func(t *testing.T) {
		before := up.count()
		a := w.send("POST", "/500", "500", "one")
		b := w.send("POST", "/500", "500", "one")
		if a.StatusCode != 500 || b.StatusCode != 500 || a.body == b.body || up.count() != before+2 {
			t.Errorf("got %d %q and %d %q", a.StatusCode, a.body, b.StatusCode, b.body)
		}
	})
	t.Run("HEAD has the headers and no body", func(t *testing.T) {
		if a := w.send("HEAD", "/charges", "", ""); a.StatusCode != 201 || a.body != "" || a.Header.Get("Location") == "" {
			t.Errorf("got %d %q %v", a.StatusCode, a.body, a.Header)
		}
	})
}

func TestBodiesArriveWhole(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, nil)
	for i, size := range []int{0, 1, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, chunked is %t", size, chunked), func(t *testing.T) {
				body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
				r, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/charges", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if chunked {
					r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(body))), -1
					r.Trailer = http.Header{"X-Sum": {"1"}} // which is not compared, so it does not arrive
				}
				r.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%t", i, chunked))
				resp, err := w.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				seen := up.requests()
				if last := seen[len(seen)-1]; resp.StatusCode != 201 || last.body != body || len(last.Trailer) > 0 || size <= 16<<10 && last.ContentLength != int64(size) {
					t.Errorf("status %d, the upstream got %d bytes with length %d", resp.StatusCode, len(last.body), last.ContentLength)
				}
			})
		}
	}
}

func TestLedger(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			w.WriteHeader(500)
			return
		}
		run(w, r, n)
	})
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Route.Operation.Effects = []string{"charge"}
		o.EffectHeader = "X-Effect-Key"
	})
	w.send("POST", "/charges", "k1", "one").want(t, 500, "")
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 2")
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 2")
	got := up.requests()
	if len(got) != 2 {
		t.Fatalf("%d upstream hits, want 2", len(got))
	}
	if a, b := got[0].Header.Get("X-Effect-Key"), got[1].Header.Get("X-Effect-Key"); a == "" || a != b {
		t.Errorf("effect keys %q and %q, want the same in both attempts", a, b)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	good := semelproxy.Options{Upstream: parse("http://a"), Route: semelhttp.Route{Operation: semel.Operation{Name: "op"}}}
	for want, change := range map[string]func(*semelproxy.Options){
		"Upstream is missing":               func(o *semelproxy.Options) { o.Upstream = nil },
		"Upstream ftp://a is not":           func(o *semelproxy.Options) { o.Upstream = parse("ftp://a") },
		"Upstream http://u:xxxxx@a is not":  func(o *semelproxy.Options) { o.Upstream = parse("http://u:secret@a") },
		`Mode is "on"`:                      func(o *semelproxy.Options) { o.Mode = "on" },
		`Protocol is "spdy"`:                func(o *semelproxy.Options) { o.Transport.Protocol = "spdy" },
		"h2c needs an http URL":             func(o *semelproxy.Options) { o.Upstream, o.Transport.Protocol = parse("https://a"), "h2c" },
		"http2 needs an https URL":          func(o *semelproxy.Options) { o.Transport.Protocol = "http2" },
		`Unguarded has "ftp"`:               func(o *semelproxy.Options) { o.Unguarded = []semelproxy.Kind{"ftp"} },
		"Route.Timeout is negative":         func(o *semelproxy.Options) { o.Route.Timeout = -1 },
		"Idempotency-Key can't be a header": func(o *semelproxy.Options) { o.TenantHeader = "idempotency-key" },
		"PassKey can't be X-Tenant":         func(o *semelproxy.Options) { o.TenantHeader, o.PassKey = "x-tenant", "X-Tenant" },
		"PassKey can't be Host":             func(o *semelproxy.Options) { o.PassKey = "host" },
		"PassKey needs {session_id} in the": func(o *semelproxy.Options) {
			o.PassKey = "Idempotency-Key"
			o.Route.KeyTemplate = semelhttp.KeyTemplate{Template: "cart:{cart_id}", Scope: "session", ScopeField: "session_id", Values: map[string]string{"cart_id": "json:/cart", "session_id": "json:/session"}}
		},
		"MaxIdle and MaxConns may not":       func(o *semelproxy.Options) { o.Transport.MaxIdle = -1 },
		"MaxBody may not be negative":        func(o *semelproxy.Options) { o.Shadow.MaxBody = -1 },
		`Key is "perhaps"`:                   func(o *semelproxy.Options) { o.Route.Key = "perhaps" },
		"Name must have 1 to 256 bytes":      func(o *semelproxy.Options) { o.Route.Operation.Name = "" },
		"Upstream http://a?q=1 is not an ht": func(o *semelproxy.Options) { o.Upstream = parse("http://a?q=1") },
	} {
		o := good
		change(&o)
		if _, err := semelproxy.New(guard, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := semelproxy.New(guard, good); err != nil {
		t.Error(err)
	}
}
