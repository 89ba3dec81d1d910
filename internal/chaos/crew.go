//go:build linux

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/semelhq/semel/internal/stage"
)

// crew is a process of workers, which can be killed in the middle of its deliveries.
type crew struct {
	*process
	run   *run
	name  string
	nodes []string

	mu  sync.Mutex
	box *box
}

// box holds the deliveries that were given to one process.
type box struct {
	queue chan job
	gone  chan struct{} // closed when the process has ended

	mu   sync.Mutex
	open map[int]job // not ended yet; nil once the process is gone
}

func newBox() *box {
	return &box{queue: make(chan job, maxUnderWay), gone: make(chan struct{}), open: map[int]job{}}
}

func newCrew(r *run, name string, nodes []string) *crew {
	c := &crew{run: r, name: name, nodes: nodes, box: newBox()}
	c.process = &process{name: name, tell: r.tell, command: c.command, read: c.read, feed: c.feed}
	return c
}

// command is this program as a worker, with a new box.
func (c *crew) command() (*exec.Cmd, error) {
	b := newBox()
	c.mu.Lock()
	c.box = b
	c.mu.Unlock()
	return child("worker")
}

// child is this program in another role.
func child(role string) (*exec.Cmd, error) {
	cmd, err := stage.Self()
	if err == nil {
		cmd.Env = append(os.Environ(), roleEnv+"="+role)
		cmd.Stderr = os.Stderr
	}
	return cmd, err
}

// feed connects the process's input to the box. No two requests have the same id, also if
// the process was started again.
func (c *crew) feed(in io.WriteCloser) {
	c.mu.Lock()
	defer c.mu.Unlock()
	go c.box.feed(in, workerConfig{Name: fmt.Sprintf("%s.%d", c.name, c.starts), Nodes: c.nodes})
}

// feed writes to the process's input, until the process is gone.
func (b *box) feed(in io.WriteCloser, config workerConfig) {
	defer in.Close()
	enc := json.NewEncoder(in)
	err := enc.Encode(config)
	for err == nil {
		select {
		case j := <-b.queue:
			err = enc.Encode(j)
		case <-b.gone:
			return
		}
	}
}

// give hands a delivery to the process, or reports that it is gone or has too many.
func (c *crew) give(j job) bool {
	c.mu.Lock()
	b := c.box
	c.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return false
	}
	select {
	case b.queue <- j:
		b.open[j.ID] = j
		return true
	default:
		return false
	}
}

// read reads the process's output. Deliveries that it hasn't ended when it dies are
// repeated, as a queue does.
func (c *crew) read(out io.Reader, ready func()) {
	c.mu.Lock()
	b := c.box
	c.mu.Unlock()
	ready()
	scan(out, func(l line) {
		switch {
		case l.Event != nil:
			c.run.log.Add(*l.Event)
		case l.Ended != 0:
			b.mu.Lock()
			delete(b.open, l.Ended)
			b.mu.Unlock()
			c.run.ended()
		}
	})
	close(b.gone)
	b.mu.Lock()
	left := b.open
	b.open = nil
	b.mu.Unlock()
	for _, j := range left {
		c.run.again(j)
	}
}

// scan reads lines of a child until it ends. The last one may be torn.
func scan(out io.Reader, f func(line)) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) == nil {
			f(l)
		}
	}
}
