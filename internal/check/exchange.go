package check

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The header lines of a request, a bound on the bytes of an answer, and how long a client that
// leaves stays after its request, because a reset drops what the other side hasn't read yet.
const (
	keyHeader, markHeader = "Idempotency-Key", "Semel-Check"
	largest               = 64 << 20
	lingering             = 20 * time.Millisecond
)

// cut is where a client leaves.
type cut string

const (
	nowhere      cut = ""
	inRequest    cut = "left in the middle of the request"
	afterRequest cut = "left after the request"
	inAnswer     cut = "left after the first event of the answer"
	halfClosed   cut = "closed its half of the connection after the request"
)

// call is one logical call: its deliveries have the same key and body.
type call struct {
	request
	key   string
	lines []string // of the header, in place of the key
}

// call makes a new call of a request, with a random UUID as its key.
func (j *judge) call(section string) call {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	c := call{key: fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])}
	return c.as(j.requests[section])
}

// as is the same call, delivered as another request.
func (c call) as(r request) call {
	r.body, r.target = strings.ReplaceAll(r.body, unique, c.key), strings.ReplaceAll(r.target, unique, c.key)
	c.request = r
	return c
}

// Answer is what a delivery got.
type Answer struct {
	Status       int
	Header       http.Header
	Body         string
	Err          error // there is no answer, or no whole one
	began, ended time.Time
}

// differs says in what two answers differ, as far as a caller cares.
func (a Answer) differs(b Answer) string {
	switch {
	case a.Err != nil || b.Err != nil || a.Status != b.Status:
		return fmt.Sprintf("the statuses %s and %s", a, b)
	case a.Body != b.Body:
		return fmt.Sprintf("the bodies, of %d and %d bytes", len(a.Body), len(b.Body))
	case a.Header.Get("Content-Type") != b.Header.Get("Content-Type") || a.Header.Get("Location") != b.Header.Get("Location"):
		return "the Content-Type or the Location"
	}
	return ""
}

func (a Answer) refuses() bool { return a.Err == nil && a.Status >= 400 }

// OK reports whether it succeeds.
func (a Answer) OK() bool { return a.Err == nil && a.Status/100 == 2 }

// Later reports whether it asks to deliver again.
func (a Answer) Later() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
}

// String is the status, or why there is none.
func (a Answer) String() string {
	if a.Err != nil {
		return "no answer (" + a.Err.Error() + ")"
	}
	return fmt.Sprint(a.Status, " ", http.StatusText(a.Status))
}

// dialed is the key of the channel that gets the connection of a request.
type dialed struct{}

// transport opens a connection for each request: net/http repeats requests with a key by itself
// when a connection that it uses again turns out to be closed.
func transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if told, ok := ctx.Value(dialed{}).(chan net.Conn); ok && err == nil {
			told <- conn
		}
		return conn, err
	}}
}

// deliver delivers a call once, and again after a refusal because there were too many requests.
func (j *judge) deliver(ctx context.Context, c call) Answer {
	for end := time.Now().Add(j.opts.Patience); ; {
		a := j.deliverCut(ctx, c, nowhere, 0)
		if a.Status != http.StatusTooManyRequests || time.Now().After(end) {
			return a
		}
		pause, _ := time.ParseDuration(a.Header.Get("Retry-After") + "s") // or a short one
		<-time.After(min(pause+lingering, time.Until(end)))
	}
}

// deliverCut delivers a call as a client that leaves somewhere, after a time.
func (j *judge) deliverCut(ctx context.Context, c call, at cut, after time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conns := make(chan net.Conn, 1)
	leaving := resetting{conns, after}
	ctx = context.WithValue(ctx, dialed{}, conns)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		switch at {
		case afterRequest:
			go func() { _, _ = leaving.Read(nil) }()
		case halfClosed:
			go func() { // net/http flushes what it wrote when this has returned
				<-time.After(after)
				if tcp, ok := (<-conns).(*net.TCPConn); ok {
					_ = tcp.CloseWrite() // if the other side has closed it, so be it
				}
			}()
		}
	}})
	var body io.Reader = strings.NewReader(c.body)
	if at == inRequest {
		body = io.MultiReader(strings.NewReader(c.body[:len(c.body)/2]), leaving)
	}
	a := Answer{began: time.Now()}
	target := c.target
	if strings.HasPrefix(target, "/") {
		target = j.base.Scheme + "://" + j.base.Host + target
	}
	r, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return Answer{Err: err, began: a.began, ended: a.began}
	}
	maps.Copy(r.Header, c.header.Clone())
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	r.ContentLength, r.Header[markHeader] = int64(len(c.body)), []string{"1"}
	r.Header[keyHeader] = []string{c.key}
	if c.lines != nil {
		r.Header[keyHeader] = c.lines
	} else if j.profile.Quoted && !j.bare {
		r.Header[keyHeader] = []string{strconv.Quote(c.key)}
	}
	resp, err := j.transport.RoundTrip(r)
	if err == nil {
		var text []byte
		if at == inAnswer {
			text, err = firstEvent(resp.Body)
			_, _ = leaving.Read(nil)
		} else {
			text, err = io.ReadAll(io.LimitReader(resp.Body, largest))
		}
		_ = resp.Body.Close()
		a.Status, a.Header, a.Body = resp.StatusCode, resp.Header, string(text)
	}
	a.Err, a.ended = err, time.Now()
	j.record(r, c, at, a)
	return a
}

// firstEvent reads a stream up to the end of its first event.
func firstEvent(stream io.Reader) (text []byte, err error) {
	lines := bufio.NewReader(io.LimitReader(stream, largest))
	for err == nil && !bytes.HasSuffix(text, []byte("\n\n")) && !bytes.HasSuffix(text, []byte("\n\r\n")) {
		var line []byte
		line, err = lines.ReadBytes('\n')
		text = append(text, line...)
	}
	if err == io.EOF { // it isn't a stream, or a short one
		err = nil
	}
	return text, err
}

// resetting resets the connection when somebody reads it, after a time.
type resetting struct {
	conns chan net.Conn
	after time.Duration
}

func (r resetting) Read([]byte) (int, error) {
	<-time.After(r.after)
	if tcp, ok := (<-r.conns).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // so that closing resets it
		_ = tcp.Close()
	}
	return 0, errors.New("the client left")
}

// settle delivers a call until it is no longer refused for the moment, or patience ends.
func (j *judge) settle(ctx context.Context, c call) Answer {
	pause := 10 * time.Millisecond
	for end := time.Now().Add(j.opts.Patience); ; pause = min(2*pause, time.Second) {
		a := j.deliver(ctx, c)
		if a.Err == nil && !j.later(a) || time.Now().Add(pause).After(end) || ctx.Err() != nil {
			return a
		}
		<-time.After(pause)
	}
}

// later reports whether an answer says that the call's outcome isn't there yet, and inFlight
// whether it says so because another delivery is running.
func (j *judge) later(a Answer) bool {
	return j.inFlight(a) || a.Later()
}

func (j *judge) inFlight(a Answer) bool {
	return slices.Contains(append([]int{http.StatusConflict, http.StatusLocked, http.StatusTooEarly}, j.profile.InFlight...), a.Status)
}

// effects is how many effects there were, or always 0 if nobody counts them. It waits until there
// are so many, because an effect may come after its answer, or be counted late.
func (j *judge) effects(ctx context.Context, expected int) (n int) {
	var err error
	for end := time.Now().Add(j.opts.Patience); j.counted; <-time.After(lingering) {
		if n, err = j.count(ctx); err == nil && n >= expected || time.Now().After(end) {
			j.counted = err == nil
			break
		}
	}
	return n
}

func (j *judge) count(ctx context.Context) (n int, err error) {
	var resp *http.Response
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.opts.Count, http.NoBody)
	if err == nil {
		resp, err = j.transport.RoundTrip(r)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = fmt.Fscan(resp.Body, &n)
	return n, err
}
