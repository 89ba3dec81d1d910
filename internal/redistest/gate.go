package redistest

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// gate passes connections on to a port. It tells who connects by the address they
// come from, and can keep some out.
type gate struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	barred  func(from string) bool
	open    map[net.Conn]string // both ends of what is passed on: where it comes from
	closed  bool
	passing sync.WaitGroup
}

// newGate listens on a free port until the test ends.
func newGate(tb testing.TB, target int) *gate {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := &gate{
		listener: l, target: net.JoinHostPort("127.0.0.1", strconv.Itoa(target)),
		barred: func(string) bool { return false }, open: map[net.Conn]string{},
	}
	g.passing.Go(g.accept)
	tb.Cleanup(g.close)
	return g
}

func (g *gate) port() int { return g.listener.Addr().(*net.TCPAddr).Port }

func (g *gate) accept() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.passing.Go(func() { g.pass(in) })
	}
}

// pass copies in both directions until one of them ends.
func (g *gate) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer out.Close()
	if !g.admit(in, out) {
		return
	}
	defer g.forget(in, out)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

func (g *gate) admit(in, out net.Conn) bool {
	from := in.RemoteAddr().(*net.TCPAddr).IP.String()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.barred(from) {
		return false
	}
	g.open[in], g.open[out] = from, from
	return true
}

func (g *gate) forget(in, out net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, in)
	delete(g.open, out)
}

// bar keeps out whoever f names, from now on, and ends what they have open.
func (g *gate) bar(f func(from string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.barred = f
	for c, from := range g.open {
		if f(from) {
			_ = c.Close()
		}
	}
}

func (g *gate) close() {
	_ = g.listener.Close()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.bar(func(string) bool { return true })
	g.passing.Wait()
}
