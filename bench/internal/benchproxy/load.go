package benchproxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel/bench/internal/loopback"
)

// load has the clients of one proxy.
type load []*client

// newLoad connects the clients.
func newLoad(addr string, opts Options) (l load, err error) {
	body := `"` + strings.Repeat("x", opts.BodyBytes-2) + `"`
	run := rand.Text()
	for i := range opts.Connections {
		conn, err := loopback.Dial(addr)
		if err != nil {
			l.close()
			return nil, err
		}
		l = append(l, &client{
			conn:  conn,
			start: fmt.Sprintf("POST /charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s-%d-", addr, len(body), run, i),
			end:   "\r\n\r\n" + body,
		})
	}
	return l, nil
}

// request sends one request by a client, and reconnects after an error.
func (l load) request(_ context.Context, i int) error {
	err := l[i].request()
	if err != nil {
		err = errors.Join(err, l[i].conn.Reconnect())
	}
	return err
}

func (l load) close() {
	for _, c := range l {
		c.conn.Close()
	}
}

// client sends one request after the other on one connection.
type client struct {
	start, end string // of a request, around the number in its key
	conn       *loopback.Conn
	out        []byte
	sent       int
}

// request sends one request with a new key, and reads the whole answer.
func (c *client) request() error {
	c.sent++
	c.out = append(c.out[:0], c.start...)
	c.out = strconv.AppendInt(c.out, int64(c.sent), 10)
	c.out = append(c.out, c.end...)
	status, _, err := c.conn.Do(c.out)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("the answer is %d", status)
	}
	return err
}
