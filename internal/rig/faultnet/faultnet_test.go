package faultnet

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// patience bounds what should come at once.
const patience = 10 * time.Second

// echo is a server that sends back what it gets. heard is told each portion.
func echo(t *testing.T) (n *Net, heard chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	heard = make(chan string, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for {
					size, err := c.Read(buf)
					if err != nil {
						heard <- "end"
						return
					}
					heard <- string(buf[:size])
					if _, err := c.Write(buf[:size]); err != nil {
						return
					}
				}
			}()
		}
	}()
	if n, err = Listen(func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n, heard
}

func dial(t *testing.T, n *Net) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// hear wants a text, or an error if the text is empty.
func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, max(1, len(want)))
	size, err := io.ReadFull(c, buf)
	if want == "" && err == nil || want != "" && err != nil || string(buf[:size]) != want {
		t.Fatalf("heard %q, %v; want %q", buf[:size], err, want)
	}
}

// silent wants nothing to arrive for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if size, err := c.Read(make([]byte, 1)); size > 0 || err == nil || !err.(net.Error).Timeout() {
		t.Fatalf("heard %d bytes, %v", size, err)
	}
}

func TestAHealthyNetworkCarriesBothWays(t *testing.T) {
	n, _ := echo(t)
	c := dial(t, n)
	say(t, c, "a")
	hear(t, c, "a")
	if n.Fired() != 0 {
		t.Errorf("fired %d times", n.Fired())
	}
}

func TestResetEndsOldAndNewConnections(t *testing.T) {
	n, _ := echo(t)
	old := dial(t, n)
	say(t, old, "a")
	hear(t, old, "a")
	n.Set(Reset)
	hear(t, old, "")
	if c, err := net.Dial("tcp", n.Addr()); err == nil { // it may be reset that early
		hear(t, c, "")
	}
	n.Set(Healthy)
	c := dial(t, n)
	say(t, c, "b")
	hear(t, c, "b")
}

func TestABlackholeHoldsWhatArrivesLater(t *testing.T) {
	n, heard := echo(t)
	c := dial(t, n)
	n.Set(Blackhole)
	say(t, c, "a")
	silent(t, c)
	if len(heard) != 0 {
		t.Error("the server heard something")
	}
	n.Set(Healthy)
	hear(t, c, "a")
}

func TestADeafNetworkSwallowsAnswers(t *testing.T) {
	n, heard := echo(t)
	c := dial(t, n)
	n.Set(Deaf)
	say(t, c, "a")
	if got := <-heard; got != "a" {
		t.Errorf("the server heard %q", got)
	}
	silent(t, c)
	n.Set(Healthy)
	hear(t, c, "")
}

func TestAHalfOpenConnectionNeverComesBack(t *testing.T) {
	n, heard := echo(t)
	c := dial(t, n)
	say(t, c, "a")
	hear(t, c, "a")
	<-heard
	n.Set(HalfOpen)
	say(t, c, "b")
	n.Set(Healthy)
	if got := <-heard; got != "end" {
		t.Errorf("the server heard %q", got)
	}
	silent(t, c)
	fresh := dial(t, n)
	say(t, fresh, "c")
	hear(t, fresh, "c")
}

func TestAHoleResetsOldConnectionsAndSwallowsNewOnes(t *testing.T) {
	n, _ := echo(t)
	old := dial(t, n)
	say(t, old, "a")
	hear(t, old, "a")
	n.Set(Hole)
	hear(t, old, "")
	swallowed := dial(t, n)
	say(t, swallowed, "b")
	silent(t, swallowed)
	if n.Fired() == 0 {
		t.Error("it has not fired")
	}
	n.Set(Healthy)
	silent(t, swallowed)
	fresh := dial(t, n)
	say(t, fresh, "c")
	hear(t, fresh, "c")
}

func TestATornConnectionEndsInTheMidst(t *testing.T) {
	n, _ := echo(t)
	n.Set(Torn)
	c := dial(t, n)
	_, _ = c.Write(bytes.Repeat([]byte("x"), 10*tornAfter)) // it may end before all is written
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err == nil || len(got) >= tornAfter {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestAFaultCanHitSomeClientsOnly(t *testing.T) {
	n, _ := echo(t)
	c := dial(t, n)
	n.SetFor(Blackhole, func(from string) bool { return from == "127.0.0.9" })
	say(t, c, "a")
	hear(t, c, "a")
	n.SetFor(Blackhole, func(from string) bool { return from == "127.0.0.1" })
	say(t, c, "b")
	silent(t, c)
}
