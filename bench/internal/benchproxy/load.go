package benchproxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/bench/internal/loopback"
)

// load has the clients of one proxy, and their measurements.
type load struct {
	clients []*client
	seconds float64
}

// newLoad connects the clients.
func newLoad(addr string, opts Options) (*load, error) {
	l := new(load)
	body := `"` + strings.Repeat("x", opts.BodyBytes-2) + `"`
	run := rand.Text()
	for i := range opts.Connections {
		conn, err := loopback.Dial(addr)
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, &client{
			conn:  conn,
			start: fmt.Sprintf("POST /charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s-%d-", addr, len(body), run, i),
			end:   "\r\n\r\n" + body,
		})
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
		c.conn.Close()
	}
}

// client sends one request after the other on one connection.
type client struct {
	start, end string // of a request, around the number in its key
	conn       *loopback.Conn
	out        []byte
	sent       int

	took   []time.Duration
	errors int
	first  error
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
		if err := c.conn.Reconnect(); err != nil {
			return
		}
		now = time.Now()
	}
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
