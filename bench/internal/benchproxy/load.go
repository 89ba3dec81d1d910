package benchproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// load has the clients of one proxy, and their measurements.
type load struct {
	addr    string
	clients []*client
	seconds float64
}

// newLoad connects the clients.
func newLoad(addr string, opts Options) (*load, error) {
	l := &load{addr: addr}
	body := `"` + strings.Repeat("x", opts.BodyBytes-2) + `"`
	run := rand.Text()
	for i := range opts.Connections {
		c := &client{
			addr:  addr,
			start: fmt.Sprintf("POST /charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s-%d-", addr, len(body), run, i),
			end:   "\r\n\r\n" + body,
		}
		l.clients = append(l.clients, c)
		if err := c.connect(); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// turn sends requests for a while, and returns the requests per second.
func (l *load) turn(ctx context.Context, d time.Duration) float64 {
	before := l.requests()
	start := time.Now()
	var wg sync.WaitGroup
	for _, c := range l.clients {
		wg.Go(func() { c.work(ctx, start.Add(d)) })
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	l.seconds += took
	return float64(l.requests()-before) / took
}

func (l *load) requests() (n int) {
	for _, c := range l.clients {
		n += len(c.took)
	}
	return n
}

// forget drops the measurements, except errors.
func (l *load) forget() {
	l.seconds = 0
	for _, c := range l.clients {
		c.took = c.took[:0]
	}
}

// side sums the measurements up.
func (l *load) side() Side {
	s := Side{Requests: l.requests(), Seconds: l.seconds}
	if s.Seconds > 0 {
		s.RequestsPerSecond = float64(s.Requests) / s.Seconds
	}
	all := make([]time.Duration, 0, s.Requests)
	for _, c := range l.clients {
		all = append(all, c.took...)
		s.Errors += c.errors
		if s.FirstError == "" && c.first != nil {
			s.FirstError = c.first.Error()
		}
	}
	slices.Sort(all)
	if n := len(all); n > 0 {
		s.P50, s.P99, s.Max = all[(n-1)/2].Microseconds(), all[(n-1)*99/100].Microseconds(), all[n-1].Microseconds()
	}
	return s
}

func (l *load) close() {
	for _, c := range l.clients {
		if c.conn != nil {
			_ = c.conn.Close()
		}
	}
}

// client sends one request after the other on one connection. It does as little as it
// can, because it shares the processors with the proxy.
type client struct {
	addr       string
	start, end string // of a request, around the number in its key
	conn       net.Conn
	in         *bufio.Reader
	out        []byte
	sent       int

	took   []time.Duration
	errors int
	first  error
}

func (c *client) connect() error {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

// work sends until the time is over. After an error it reconnects.
func (c *client) work(ctx context.Context, until time.Time) {
	for now := time.Now(); now.Before(until) && ctx.Err() == nil; {
		err := c.request()
		end := time.Now()
		if err == nil {
			c.took = append(c.took, end.Sub(now))
			now = end
			continue
		}
		c.errors++
		if c.first == nil {
			c.first = err
		}
		_ = c.conn.Close()
		if err := c.connect(); err != nil {
			return
		}
		now = time.Now()
	}
}

var (
	created  = []byte("HTTP/1.1 201 ")
	length   = []byte("Content-Length: ")
	errShape = errors.New("the answer has no length")
)

// request sends one request with a new key, and reads the whole answer.
func (c *client) request() error {
	c.sent++
	c.out = append(c.out[:0], c.start...)
	c.out = strconv.AppendInt(c.out, int64(c.sent), 10)
	c.out = append(c.out, c.end...)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, created) {
		return fmt.Errorf("the answer is %q", bytes.TrimSpace(line))
	}
	size := -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, length); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	if size < 0 {
		return errShape
	}
	_, err = c.in.Discard(size)
	return err
}
