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
	run *run

	mu  sync.Mutex
	now *box
}

// box holds the deliveries that were given to one process.
type box struct {
	writing sync.Mutex
	in      *json.Encoder // to the process

	mu   sync.Mutex
	open map[int]job // not ended yet; nil once the process is gone
}

// newCrew is a crew that works at nodes.
func newCrew(r *run, name string, nodes []string) *crew {
	c := &crew{run: r, now: &box{}}
	c.process = &process{name: name, tell: r.tell, program: func(start int) (program, error) {
		b := &box{open: map[int]job{}}
		cmd, err := child("worker")
		return program{cmd, func(out io.Reader, ready func()) {
			ready()
			c.read(b, out)
		}, func(in io.Writer) {
			b.in = json.NewEncoder(in)
			// No two requests have the same id, also if the process was started again.
			_ = b.in.Encode(workerConfig{Name: fmt.Sprintf("%s.%d", name, start), Nodes: nodes}) // or it ends
			c.mu.Lock()
			defer c.mu.Unlock()
			c.now = b
		}}, err
	}}
	return c
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

// give hands a delivery to the process, or reports that it is gone. It may take as long as the
// process is paused.
func (c *crew) give(j job) bool {
	c.mu.Lock()
	b := c.now
	c.mu.Unlock()
	b.mu.Lock()
	if b.open == nil {
		b.mu.Unlock()
		return false
	}
	b.open[j.ID] = j
	b.mu.Unlock()
	b.writing.Lock()
	defer b.writing.Unlock()
	_ = b.in.Encode(j) // what it doesn't get is left in the box when it is gone
	return true
}

// read reads the process's output. Deliveries that it hasn't ended when it dies are
// repeated, as a queue does.
func (c *crew) read(b *box, out io.Reader) {
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
