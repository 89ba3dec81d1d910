package stdio

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/sse"
)

// Child is a server over Streamable HTTP, in front of a program that speaks MCP over its standard
// input and output. Each POST is one message. All clients share the program, which sees one client:
// the first that initialized, also after it was started again.
//
// If the program dies, requests under way get no answer: their connections break, because nobody
// knows how far it came. The next message starts it again. A program that is silent about a request
// for Timeout is killed.
type Child struct {
	// Command is the program and its arguments.
	Command []string
	// Stderr gets what the program prints there, and a line about each line that is no message.
	Stderr io.Writer
	// Timeout is how long the program may be silent about a request.
	Timeout time.Duration
	// Bridged says that the client is a [Bridge]: it has no headers that mirror arguments, so
	// tools aren't told to have any (x-mcp-header).
	Bridged bool

	mu      sync.Mutex
	running *process
	closed  bool
	hello   []byte // the first client's initialize, and the server's result
	welcome []byte
	stream  chan []byte // messages that belong to no request
	server  *http.Server
}

var errClosed = errors.New("the server is being stopped")

// process is the running one, or a new one, which hears the first client's initialize again.
func (c *Child) process() (p *process, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.running != nil && !c.running.over.Load() {
		return c.running, nil
	}
	if c.stream == nil {
		c.stream = make(chan []byte, 100)
	}
	if p, err = start(c.Command, c.Stderr, c.Timeout, c.other); err != nil {
		return nil, err
	}
	if c.hello != nil {
		x, _, err := p.ask(c.hello, nil)
		if err == nil {
			_, err = c.next(p, x, c.Timeout)
		}
		if err == nil {
			_, err = p.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		}
		if err != nil {
			p.kill()
			return nil, fmt.Errorf("the server doesn't start again: %w", err)
		}
	}
	c.running = p
	return p, nil
}

// Listen opens the server to this machine, until Close. Other programs reach the listener, and don't
// know the path.
func (c *Child) Listen() (endpoint string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	path := "/" + rand.Text()
	mux := http.NewServeMux()
	mux.Handle(path, c)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: grace}
	go func() { _ = c.server.Serve(l) }()
	return "http://" + l.Addr().String() + path, nil
}

// Close closes the listener and ends the program: its input ends, and it is killed if that doesn't
// end it.
func (c *Child) Close() {
	c.mu.Lock()
	c.closed = true
	p := c.running
	c.mu.Unlock()
	if c.server != nil {
		_ = c.server.Close()
	}
	if p != nil {
		p.end()
	}
}

// other takes a message that belongs to no request: it goes to whoever listens, or to the only
// request there is, and else waits for a listener. More than a hundred don't.
func (c *Child) other(message []byte, p *process) {
	if x := p.only(); x != nil && jsonscan.Member(message, "id") == nil {
		x.send(message)
		return
	}
	select {
	case c.stream <- message:
	default:
	}
}

var errSilent = errors.New("the server is silent")

var errLeft = errors.New("the client has left")

// next is the next message about a request.
func (c *Child) next(p *process, x *exchange, timeout time.Duration) ([]byte, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case message := <-x.messages:
		return message, nil
	case <-p.gone:
		select {
		case message := <-x.messages: // it has said that before
			return message, nil
		default:
			return nil, io.ErrUnexpectedEOF
		}
	case <-timer.C:
		p.forget(x)
		p.kill()
		return nil, errSilent
	case <-x.over:
		p.forget(x)
		return nil, errLeft
	}
}

// ServeHTTP handles one message, or sends what belongs to none.
func (c *Child) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		c.listen(w, r)
		return
	case http.MethodPost:
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	if err != nil {
		refuse(w, http.StatusBadRequest, nil, jsonrpc.ParseError, "The message can't be read.")
		return
	}
	m, err := jsonrpc.ReadMessage(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, m.ID, jsonrpc.InvalidRequest, err.Error())
		return
	}
	c.mu.Lock()
	welcome := c.welcome
	c.mu.Unlock()
	switch {
	case m.Method == "initialize" && welcome != nil:
		reply(w, jsonrpc.Answer(m.ID, welcome, nil))
		return
	case m.Method == "notifications/cancelled":
		// A client's leaving cancels; its id may be another client's, too.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	p, x, sent, err := c.send(m, body, r.Context().Done())
	switch {
	case err != nil && sent:
		panic(http.ErrAbortHandler)
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, m.ID, jsonrpc.InternalError, err.Error())
	case x == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		c.answer(w, p, x, m, body)
	}
}

// send sends a message to the program; x is nil for one that gets no answer. Where the program has
// died unnoticed, and got none of it, a new one gets it. sent reports whether one may have got any.
func (c *Child) send(m jsonrpc.Message, body []byte, over <-chan struct{}) (p *process, x *exchange, sent bool, err error) {
	for range 2 {
		if p, err = c.process(); err != nil {
			break
		}
		if m.ID != nil && !m.Answers {
			x, sent, err = p.ask(body, over)
		} else {
			var n int
			n, err = p.write(body)
			sent = n > 0
		}
		if err == nil || sent {
			break
		}
		p.kill()
	}
	return p, x, sent, err
}

// answer answers a request with what comes: as JSON if that is only the answer, else as a stream.
func (c *Child) answer(w http.ResponseWriter, p *process, x *exchange, m jsonrpc.Message, body []byte) {
	streaming, timeout := false, c.Timeout
	if m.Method == "subscriptions/listen" { // it may be silent for ever
		timeout = math.MaxInt64
	}
	for {
		message, err := c.next(p, x, timeout)
		switch {
		case errors.Is(err, errLeft): // nothing may be sent for it any more
			if m.Method != "initialize" {
				_, _ = p.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, x.number))
			}
			panic(http.ErrAbortHandler)
		case err != nil:
			panic(http.ErrAbortHandler) // nobody knows how far it came
		}
		final := jsonscan.Member(message, "method") == nil
		if final {
			message = c.seen(m.Method, body, message)
		}
		if final && !streaming {
			reply(w, message)
			return
		}
		if !streaming {
			streaming = true
			w.Header().Set("Content-Type", sse.MediaType)
			w.Header().Set("Cache-Control", "no-store")
		}
		sse.Write(w, sse.JSON(message))
		if final {
			return
		}
	}
}

// seen takes note of an answer that matters to the clients that follow, and returns it.
func (c *Child) seen(method string, request, message []byte) []byte {
	result := jsonscan.Member(message, "result")
	switch {
	case method == "initialize" && result != nil:
		c.mu.Lock()
		c.hello, c.welcome = bytes.Clone(request), bytes.Clone(result)
		c.mu.Unlock()
	case method == "tools/list" && c.Bridged:
		return bytes.ReplaceAll(message, []byte(`"x-mcp-header"`), []byte(`"x-not-mirrored"`))
	}
	return message
}

// listen sends what belongs to no request.
func (c *Child) listen(w http.ResponseWriter, r *http.Request) {
	if _, err := c.process(); err != nil {
		refuse(w, http.StatusServiceUnavailable, nil, jsonrpc.InternalError, err.Error())
		return
	}
	w.Header().Set("Content-Type", sse.MediaType)
	w.Header().Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case message := <-c.stream:
			sse.Write(w, sse.JSON(message))
		case <-r.Context().Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, message []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(message)
}

// failure is an error of JSON-RPC.
func failure(id []byte, code int, message string) []byte {
	text, _ := json.Marshal(map[string]any{"code": code, "message": message}) // doesn't fail
	return jsonrpc.Answer(id, nil, text)
}

// refuse answers what the program didn't get.
func refuse(w http.ResponseWriter, status int, id []byte, code int, message string) {
	door.SetEffect(w.Header(), door.EffectNone)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(failure(id, code, message))
}
