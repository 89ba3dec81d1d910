package safehttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/safehttp"
)

// Where only the end of the connection ends an answer, JSON shows whether it is whole.
func TestAnswersThatEndWithTheirConnection(t *testing.T) {
	for _, c := range []struct {
		head, body string
		broken     bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Type: application/json", `{"id":["1","}]\"\\"]} `, false},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json", `{"id":["1","}]\"`, true},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/problem+json; charset=utf-8", `[{}`, true},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json", `"\`, true},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json", `"{"`, false},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json", `OK`, false},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json", ``, false},
		{"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br", `{`, false},
		{"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1", `{`, false},
		{"HTTP/1.0 200 OK\r\nContent-Type: text/plain", `{`, false},
		{"HTTP/1.0 200 OK", `{`, false},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, c.head+"\r\n\r\n"+c.body)
			}
		}()
		tr := &safehttp.Transport{Base: &http.Transport{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String(), strings.NewReader("charge"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if string(text) != c.body || errors.Is(err, io.ErrUnexpectedEOF) != c.broken || !c.broken && err != nil {
			t.Errorf("%q with %q: got %q, %v", c.head, c.body, text, err)
		}
		if err := errors.Join(resp.Body.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		tr.CloseIdleConnections()
	}
}
