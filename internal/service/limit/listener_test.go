package limit_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel/internal/service/limit"
)

// queue is a listener whose connections are in memory.
type queue struct {
	net.Listener
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn, 8), closed: make(chan struct{})} }

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func TestListener(t *testing.T) {
	t.Run("connections beyond the limit wait until one is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			l := limit.Listener(q, 2, limit.Pace{})
			accepted := make(chan net.Conn, 8)
			end := make(chan error, 1)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						end <- err
						return
					}
					accepted <- c
				}
			}()
			for range 5 {
				c, _ := net.Pipe()
				q.conns <- c
			}
			expect := func(n int) {
				t.Helper()
				synctest.Wait()
				if len(accepted) != n {
					t.Fatalf("%d connections are accepted, want %d", len(accepted), n)
				}
			}
			expect(2)
			first := <-accepted
			expect(1)
			_ = first.Close()
			_ = first.Close() // frees no second slot
			expect(2)
			// Closing wakes the Accept that waits for a slot.
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := <-end; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	})
	t.Run("a failed accept keeps no slot", func(t *testing.T) {
		q := newQueue()
		l := limit.Listener(failOnce(q), 1, limit.Pace{})
		if _, err := l.Accept(); !errors.Is(err, errOnce) {
			t.Fatal(err)
		}
		c, _ := net.Pipe()
		q.conns <- c
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("one side can be ended first, where the connection can", func(t *testing.T) {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := limit.Listener(tcp, 1, limit.Pace{})
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if err := server.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error("the client does not see the end:", err)
		}
		if _, err := client.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Error("the server does not hear the client any more:", err)
		}
		q := newQueue()
		other := limit.Listener(q, 1, limit.Pace{})
		pipe, _ := net.Pipe()
		q.conns <- pipe
		c, err := other.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	})
}

var errOnce = errors.New("too many open files")

type failing struct {
	net.Listener
	failed bool
}

func failOnce(l net.Listener) *failing { return &failing{Listener: l} }

func (f *failing) Accept() (net.Conn, error) {
	if !f.failed {
		f.failed = true
		return nil, errOnce
	}
	return f.Listener.Accept()
}
