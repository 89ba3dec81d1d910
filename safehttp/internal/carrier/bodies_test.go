package carrier

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// watched notes whether it was closed.
type watched struct {
	io.Reader
	closed bool
}

func (w *watched) Close() error {
	w.closed = true
	return nil
}

// A body is whole on each connection, and stays open until something was sent. Of one that
// isn't made anew for each, only the beginning is kept.
func TestBodies(t *testing.T) {
	text := strings.Repeat("x", 2*maxRestart)
	for _, read := range []int{0, 1, maxRestart, maxRestart + 1} {
		body := &watched{Reader: strings.NewReader(text)}
		r, err := http.NewRequest("POST", "http://a.test", body)
		if err != nil {
			t.Fatal(err)
		}
		b := bodies{Request: r}
		var first, second sending
		one, err := b.next(&first)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(one, make([]byte, read)); err != nil {
			t.Fatal(n, err)
		}
		if _ = one.Close(); body.closed {
			t.Error("closed before anything was sent")
		}
		two, err := b.next(&second)
		if lost := read > maxRestart; lost {
			if err == nil {
				t.Errorf("after %d bytes it is said to be whole", read)
			}
			b.close()
		} else if err != nil {
			t.Fatal(err)
		} else {
			half := make([]byte, len(text)/2)
			if _, err := io.ReadFull(two, half); err != nil {
				t.Fatal(err)
			}
			second.begun.Store(&unknown)
			rest, err := io.ReadAll(two)
			if err != nil || string(half)+string(rest) != text {
				t.Errorf("after %d bytes it has %d, %v", read, len(half)+len(rest), err)
			}
			_ = two.Close()
		}
		if !body.closed {
			t.Errorf("after %d bytes it is open", read)
		}
	}
}
