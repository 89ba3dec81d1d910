package semelproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/transport/semelproxy"
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
		if a.ProtoMajor != 2 || a.Trailer.Get("Grpc-Status") != "0" || a.Trailer.Get("Grpc-Message") != "fine" || up.count() != n+1 {
			t.Errorf("got %s with trailers %v, and %d upstream hits", a.Proto, a.Trailer, up.count())
		}
	}
	if te := up.requests()[0].Header.Get("Te"); te != "trailers" {
		t.Errorf("the upstream got TE %q", te)
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
					<-more
				}
			})
			accept := "*/*"
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				if unguarded {
					accept, o.Unguarded = "text/event-stream", []semelproxy.Kind{semelproxy.KindSSE}
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
