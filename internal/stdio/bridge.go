package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/paramheader"
	"github.com/semelhq/semel/internal/sse"
)

// Bridge sends what a host writes to a server over Streamable HTTP, and writes the answers for the
// host, a line each. Once the host has cancelled a request, it gets nothing more about it.
type Bridge struct {
	// Endpoint is the server's URL.
	Endpoint string
	// Out gets the lines.
	Out io.Writer

	client http.Client
	mu     sync.Mutex                    // of Out, too
	live   map[string]context.CancelFunc // requests under way, by their ids
	spoken string                        // the version that the server answered with; empty: none yet
	broken error                         // the host reads no more
	work   sync.WaitGroup
}

// Run sends the lines of a host until they end, and waits for the answers that are due. The
// context ends all requests.
func (b *Bridge) Run(ctx context.Context, in io.Reader) error {
	b.live = map[string]context.CancelFunc{}
	b.client.Transport = &http.Transport{MaxIdleConnsPerHost: 10}
	defer b.client.CloseIdleConnections()
	listening, stop := context.WithCancel(ctx)
	lines := bufio.NewReader(in)
	for {
		line, err := nextLine(lines)
		if err != nil {
			b.work.Wait()
			stop()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			return errors.Join(err, b.broken)
		}
		m, err := jsonrpc.ReadMessage(line)
		switch {
		case len(line) == 0 && line != nil:
		case err != nil:
			// The answer says why, and has the id if there is one.
			fault, _ := errors.AsType[*jsonrpc.Error](err)
			b.write(failure(m.ID, fault.Code, fault.Message))
		case m.Method == "notifications/cancelled":
			b.cancel(string(jsonscan.Member(m.Params, "requestId")))
		case m.ID == nil || m.Answers: // in order
			b.post(ctx, m, line)
			if m.Method == "notifications/initialized" {
				go b.listen(listening)
			}
		default:
			b.request(ctx, m, line)
		}
	}
}

// request sends a request in the background.
func (b *Bridge) request(ctx context.Context, m jsonrpc.Message, line []byte) {
	id := string(m.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[id] != nil {
		b.put(failure(m.ID, jsonrpc.InvalidRequest, "A request with this id is under way."))
		return
	}
	ctx, b.live[id] = context.WithCancel(ctx)
	b.work.Go(func() {
		defer b.cancel(id)
		b.post(ctx, m, line)
	})
}

// cancel ends a request. Nothing about it is written after that.
func (b *Bridge) cancel(id string) {
	b.mu.Lock()
	cancel := b.live[id]
	delete(b.live, id)
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// post sends a message, and writes what comes.
func (b *Bridge) post(ctx context.Context, m jsonrpc.Message, line []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.Endpoint, bytes.NewReader(line))
	if err == nil {
		b.head(r, m)
		err = b.exchange(r, m)
	}
	if err != nil {
		b.answer(m, failure(m.ID, jsonrpc.InternalError, "There is no answer: "+err.Error()))
	}
}

// head says in headers what they have to repeat of the body.
func (b *Bridge) head(r *http.Request, m jsonrpc.Message) {
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, "+sse.MediaType)
	version, own := jsonscan.Text(jsonscan.At(m.Params, "_meta", "io.modelcontextprotocol/protocolVersion"))
	if !own {
		b.mu.Lock()
		version = b.spoken
		b.mu.Unlock()
	}
	if version != "" && m.Method != "initialize" {
		r.Header.Set("MCP-Protocol-Version", version)
	}
	if m.Method == "" || !own {
		return
	}
	r.Header.Set("Mcp-Method", m.Method)
	for _, member := range []string{"name", "uri"} {
		if name, is := jsonscan.Text(jsonscan.Member(m.Params, member)); is {
			r.Header.Set("Mcp-Name", paramheader.Encode(name))
			return
		}
	}
}

// errTooLong ends an exchange with a server that sends more than a message has.
var errTooLong = fmt.Errorf("the server sent more than the %d bytes of a message", maxLine)

// exchange sends a request over HTTP, and writes what comes: one message or a stream of them.
func (b *Bridge) exchange(r *http.Request, m jsonrpc.Message) error {
	resp, err := b.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !sse.Is(resp.Header["Content-Type"]) {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxLine+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxLine:
			return errTooLong
		case resp.StatusCode == http.StatusAccepted || m.ID == nil:
			return nil
		case jsonscan.Member(text, "jsonrpc") == nil:
			return errors.New(resp.Status)
		}
		b.answer(m, text)
		return nil
	}
	var events sse.Buffer
	part, final := make([]byte, 32<<10), m.ID == nil
	for {
		for event := events.Event(); event != nil; event = events.Event() {
			if data := sse.Data(event); data != nil {
				final = final || jsonscan.Member(data, "method") == nil
				b.answer(m, data)
			}
		}
		if events.Len() > maxLine { // and the event hasn't ended
			return errTooLong
		}
		n, err := resp.Body.Read(part)
		events.Write(part[:n])
		switch {
		case n == 0 && errors.Is(err, io.EOF) && final:
			return nil
		case n == 0 && err != nil:
			return err
		}
	}
}

// listen writes what the server sends by itself, as long as it does.
func (b *Bridge) listen(ctx context.Context) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Endpoint, http.NoBody)
	if err != nil {
		return
	}
	m := jsonrpc.Message{}
	b.head(r, m)
	r.Header.Set("Accept", sse.MediaType)
	r.Header.Del("Content-Type")
	_ = b.exchange(r, m) // it sends nothing then
}

// answer writes a message about a request, unless that has ended.
func (b *Bridge) answer(m jsonrpc.Message, message []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, is := b.live[string(m.ID)]; m.ID != nil && !is {
		return
	}
	if m.Method == "initialize" {
		b.spoken, _ = jsonscan.Text(jsonscan.At(message, "result", "protocolVersion"))
	}
	b.put(message)
}

func (b *Bridge) write(message []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(message)
}

// put writes a line. A host that reads no more has left: so has every request.
func (b *Bridge) put(message []byte) {
	if b.broken != nil {
		return
	}
	if _, b.broken = b.Out.Write(oneLine(message)); b.broken != nil {
		for _, cancel := range b.live {
			cancel()
		}
	}
}
