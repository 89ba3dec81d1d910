package semelproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// polite is an upstream that is restarted gracefully, as with a reload of nginx:
// the listener stays, connections that wait for their next request are closed, and
// what comes on a new one is answered.
type polite struct {
	tcp *net.TCPListener

	mu      sync.Mutex
	idle    map[net.Conn]bool // those that have had an answer
	effects map[string]int    // by body
}

// serve runs until stop, which lets it end what it has begun.
func (u *polite) serve() (stop func()) {
	_ = u.tcp.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := u.tcp.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { u.answer(c) })
		}
	})
	return func() {
		_ = u.tcp.SetDeadline(time.Unix(1, 0))
		u.mu.Lock()
		for c := range u.idle {
			_ = c.Close()
		}
		u.mu.Unlock()
		wg.Wait()
	}
}

func (u *polite) answer(c net.Conn) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		u.mu.Lock()
		delete(u.idle, c)
		u.mu.Unlock()
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		u.mu.Lock()
		u.effects[string(body)]++
		u.mu.Unlock()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		if r.Close {
			return
		}
		u.mu.Lock()
		u.idle[c] = true
		u.mu.Unlock()
	}
}

// An upstream that is restarted gracefully sees no call twice. With a connection for
// each it leaves none held that it did not see; otherwise it may close one on which a
// call has just arrived.
func TestGracefulRestartsOfTheUpstream(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]bool{"used connections": false, "fresh connections": true} {
		t.Run(name, func(t *testing.T) { restarts(t, fresh) })
	}
}

func restarts(t *testing.T, fresh bool) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	up := &polite{tcp: tcp, idle: map[net.Conn]bool{}, effects: map[string]int{}}
	w := newWorld(t, "http://"+tcp.Addr().String(), func(_ *world, o *semelproxy.Options) { o.Transport.Fresh = fresh })
	const callers = 8
	restarts := thorough.Scaled(25)
	answered, over := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	status := map[string]int{} // by key
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("k-%d-%d", c, n)
				a := w.send("POST", "/charges", key, key)
				mu.Lock()
				status[key] = a.StatusCode
				mu.Unlock()
				if a.StatusCode != 200 && (fresh || !strings.Contains(a.body, `"code":"unknown"`)) {
					t.Errorf("%s got %d %s", key, a.StatusCode, a.body)
				}
				select {
				case answered <- struct{}{}:
				case <-over:
					return
				}
			}
		})
	}
	for range restarts {
		stop := up.serve()
		for range 2 * callers { // it works
			<-answered
		}
		stop()
	}
	stop := up.serve()
	defer stop()
	close(over)
	wg.Wait()
	held := 0
	for key, got := range status {
		n := up.effects[key]
		if n > 1 || got == 200 && n != 1 {
			t.Errorf("%s got %d and ran %d times", key, got, n)
		}
		if got != 200 {
			held++
		}
	}
	t.Logf("%d of %d calls are held after %d restarts", held, len(status), restarts)
}
