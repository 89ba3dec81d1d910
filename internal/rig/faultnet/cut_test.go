package faultnet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// cutting cuts each exchange in one way.
func cutting(c Cut) func() Cut { return func() Cut { return c } }

func TestCutExchanges(t *testing.T) {
	for _, test := range []struct {
		cut   Cut
		heard bool // the server got all of it
	}{
		{Cut{Place: InRequest}, false},
		{Cut{Place: BeforeAnswer}, true},
		{Cut{Place: InAnswer}, true},
	} {
		t.Run(string(test.cut.Place), func(t *testing.T) {
			n, heard := echo(t)
			c := dial(t, n)
			say(t, c, "a")
			hear(t, c, "a")
			<-heard
			n.CutEach(cutting(test.cut))
			request := strings.Repeat("b", 1000)
			say(t, c, request)
			if answer, err := io.ReadAll(c); err == nil || len(answer) >= len(request) || len(answer) > 0 && test.cut.Place != InAnswer {
				t.Errorf("the client got %d bytes, %v", len(answer), err)
			}
			if got := <-heard; (got == request) != test.heard {
				t.Errorf("the server heard %d bytes", len(got))
			}
			if got := n.Cuts(); len(got) != 1 || got[test.cut] != 1 || n.Fired() != 1 {
				t.Errorf("cuts %v, fired %d", got, n.Fired())
			}
		})
	}
}

// A fast server may answer the part of a request before the proxy ends the connection.
func TestNoAnswerPassesToARequestThatWasCut(t *testing.T) {
	n := &Net{draw: cutting(Cut{Place: InRequest})}
	p := &pair{}
	if pass, cut := n.part(p, 100, false); pass == 100 || !cut {
		t.Fatalf("%d of 100 bytes pass, cut %v", pass, cut)
	}
	if pass, _ := n.part(p, 100, true); pass != 0 {
		t.Fatalf("%d bytes of the answer pass", pass)
	}
}

// TestAfterTheRequest has a server that doesn't answer before the cut.
func TestAfterTheRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n, err := Listen(func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.CutEach(cutting(Cut{Place: AfterRequest}))
	c := dial(t, n)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	say(t, c, "request")
	if got, err := io.ReadAll(server); string(got) != "request" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server heard %q, %v", got, err)
	}
	hear(t, c, "")
	if got := n.Cuts()[Cut{Place: AfterRequest}]; got != 1 {
		t.Errorf("%d cuts", got)
	}
}

func TestAnAnswerMayBeFasterThanTheCut(t *testing.T) {
	n, _ := echo(t)
	c := dial(t, n)
	n.CutEach(cutting(Cut{Place: AfterRequest}))
	for range 3 {
		say(t, c, "a")
		answer := make([]byte, 1)
		if _, err := io.ReadFull(c, answer); err != nil { // a machine that was busy
			if n.Cuts()[Cut{Place: AfterRequest}] != 1 {
				t.Error(err)
			}
			return
		}
	}
	hearsMore := dial(t, n)
	n.CutEach(nil)
	say(t, hearsMore, "b")
	hear(t, hearsMore, "b")
}

func TestAMuteConnectionEndsByItsClient(t *testing.T) {
	for _, place := range []Place{InRequest, BeforeAnswer, InAnswer} {
		t.Run(string(place), func(t *testing.T) {
			n, heard := echo(t)
			n.CutEach(cutting(Cut{Place: place, Mute: true}))
			c := dial(t, n)
			say(t, c, "a") // a single byte never passes
			silent(t, c)
			if place != InRequest {
				<-heard
			}
			say(t, c, "more")
			silent(t, c)
			if len(heard) != 0 {
				t.Errorf("the server heard %q", <-heard)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if got := <-heard; got != "end" {
				t.Errorf("the server heard %q", got)
			}
		})
	}
}

func TestEachExchangeIsDrawn(t *testing.T) {
	n, _ := echo(t)
	drawn := 0
	n.CutEach(func() Cut { drawn++; return Cut{} })
	c := dial(t, n)
	for range 3 {
		say(t, c, "a")
		hear(t, c, "a")
	}
	n.CutEach(nil) // waits for a running draw
	if drawn != 3 || len(n.Cuts()) != 0 {
		t.Errorf("%d exchanges drawn, cuts %v", drawn, n.Cuts())
	}
}

func TestClientsMaySpeakTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	plain, _ := echo(t)
	n, err := ListenTLS(func() (net.Conn, error) { return net.Dial("tcp", plain.Addr()) }, &tls.Config{Certificates: certified.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	c, err := tls.Dial("tcp", n.Addr(), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	say(t, c, "a")
	hear(t, c, "a")
	n.CutEach(cutting(Cut{Place: BeforeAnswer}))
	say(t, c, string(bytes.Repeat([]byte("b"), 100)))
	if got, err := io.ReadAll(c); len(got) != 0 || err == nil {
		t.Errorf("heard %d bytes, %v: TLS has said goodbye", len(got), err)
	}
}
