package stdio

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
)

// process is one run of the program. A new one begins after it has died.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.ReadCloser
	gone     chan struct{} // closed when nothing more comes
	patience time.Duration
	over     atomic.Bool // it has been killed, or is about to be

	writing sync.Mutex // of a line

	mu      sync.Mutex
	last    int64               // the newest id
	pending map[int64]*exchange // by the id that the program sees
}

// exchange is a request under way. The program sees an id and a progress token of ours, because
// those of several clients may be equal.
type exchange struct {
	number    int64
	id, token []byte          // the client's; token nil: it wants no progress
	messages  chan []byte     // for the client, as it would have got them
	over      <-chan struct{} // the client has left
}

func start(command []string, stderr io.Writer, patience time.Duration, other func(message []byte, p *process)) (*process, error) {
	p := &process{patience: patience, cmd: exec.Command(command[0], command[1:]...), gone: make(chan struct{}), pending: map[int64]*exchange{}}
	p.cmd.Stderr, p.cmd.WaitDelay = stderr, grace
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(stderr, other)
	return p, nil
}

// read reads what the program prints, until it ends. Every answer finds its request by its id, and
// only once: what comes a second time, or after its client has left or the time was up, is dropped.
func (p *process) read(stderr io.Writer, other func(message []byte, p *process)) {
	defer func() {
		p.kill() // without its output it is of no use
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	lines := bufio.NewReader(p.out)
	for {
		line, err := nextLine(lines)
		switch {
		case err != nil:
			return
		case len(line) == 0 && line != nil:
			continue
		case line == nil || jsonrpc.First(line) != '{' || !json.Valid(line):
			fmt.Fprintf(stderr, "semel: the server printed what is no message: %.200q\n", line)
			continue
		}
		method := jsonscan.Member(line, "method")
		switch id := jsonscan.Member(line, "id"); {
		case method == nil && id != nil:
			if x := p.take(id); x != nil {
				x.send(splice(line, x.id, id))
			}
		case method == nil:
			fmt.Fprintf(stderr, "semel: the server printed an answer without an id: %.200q\n", line)
		default:
			if token := jsonscan.At(line, "params", "progressToken"); token != nil && id == nil {
				if x := p.of(token); x != nil && x.token != nil {
					x.send(splice(line, x.token, token))
				}
				continue
			}
			other(line, p)
		}
	}
}

// splice is a message with another value in the place of some of its own; nil ones don't count.
func splice(message, value []byte, old ...[]byte) (spliced []byte) {
	slices.SortFunc(old, func(a, b []byte) int { return cap(b) - cap(a) }) // in the order of the message
	at := 0
	for _, v := range old {
		if v != nil {
			begin := jsonscan.Offset(message, v)
			spliced = append(append(spliced, message[at:begin]...), value...)
			at = begin + len(v)
		}
	}
	return append(spliced, message[at:]...)
}

func (x *exchange) send(message []byte) {
	select {
	case x.messages <- message:
	case <-x.over:
	}
}

func (p *process) of(number []byte) *exchange {
	n, err := strconv.ParseInt(string(number), 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return nil
	}
	return p.pending[n]
}

// take ends the exchange with a number; nil if there is none.
func (p *process) take(number []byte) *exchange {
	x := p.of(number)
	if x != nil {
		p.forget(x)
	}
	return x
}

func (p *process) forget(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, x.number)
}

// only is the one exchange under way; nil if there are none or several.
func (p *process) only() *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.pending {
		if len(p.pending) == 1 {
			return x
		}
	}
	return nil
}

// ask sends a request under an id of its own. sent reports whether the program may have got any
// of it.
func (p *process) ask(request []byte, over <-chan struct{}) (x *exchange, sent bool, err error) {
	id := jsonscan.Member(request, "id")
	token := jsonscan.At(request, "params", "_meta", "progressToken")
	x = &exchange{id: id, token: token, messages: make(chan []byte, 16), over: over}
	p.mu.Lock()
	p.last++
	x.number = p.last
	p.pending[x.number] = x
	p.mu.Unlock()
	n, err := p.write(splice(request, strconv.AppendInt(nil, x.number, 10), id, token))
	if err != nil {
		p.forget(x)
	}
	return x, n > 0, err
}

// write writes a line. A program that doesn't read is killed.
func (p *process) write(message []byte) (n int, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	defer time.AfterFunc(p.patience, p.kill).Stop()
	return p.in.Write(oneLine(message))
}

func (p *process) kill() {
	p.over.Store(true)
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.out.Close() // a program of its own may still have it open
}

// grace is how long a program may take to end by itself when its input ends.
const grace = 5 * time.Second

// end ends the program as the protocol wants: its input ends first.
func (p *process) end() {
	_ = p.in.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C:
		p.kill()
		<-p.gone
	}
}
