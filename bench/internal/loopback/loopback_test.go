package loopback

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAConnectionIsUsedAgain(t *testing.T) {
	site, err := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "stream":
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
		case "hang up":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.RemoteAddr+" "+string(body))
		}
	}), true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := Dial(site.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(body string) (int, string, error) {
		status, answer, err := c.Do([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + string(rune('0'+len(body))) + "\r\n\r\n" + body))
		return status, string(answer), err
	}
	status, first, err := do("one")
	if status != http.StatusTeapot || err != nil || !strings.HasSuffix(first, " one") {
		t.Fatalf("%d %q, %v", status, first, err)
	}
	status, second, err := do("four")
	if status != http.StatusTeapot || err != nil || second != strings.TrimSuffix(first, "one")+"four" {
		t.Errorf("%d %q after %q, %v", status, second, first, err)
	}
	if _, _, err = do("stream"); err != errShape {
		t.Errorf("an answer without a length: %v", err)
	}
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if _, _, err = do("hang up"); err == nil {
		t.Error("no answer is one")
	}
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if status, _, err = do("one"); status != http.StatusTeapot || err != nil {
		t.Errorf("%d, %v", status, err)
	}
}
