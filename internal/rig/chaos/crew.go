//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/stage"
)

// roleEnv names what a process of the rig is, other than the rig itself.
const roleEnv = "SEMEL_CHAOS_ROLE"

// Child runs this process as a part of the rig, if it is one, and reports whether it
// was. Call it first in TestMain: the rig starts the test binary again as a worker or the
// upstream.
func Child() bool {
	role := os.Getenv(roleEnv)
	if role == "" {
		return false
	}
	var err error
	switch role {
	case "worker":
		err = workerProcess(os.Stdin, os.Stdout)
	case "upstream":
		err = upstreamProcess(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// line is a line from a child to the rig. It isn't lost if the child is killed right
// afterwards.
type line struct {
	Event *history.Event `json:"event,omitempty"`
	Ended int            `json:"ended,omitempty"` // the delivery that has ended
	Addr  string         `json:"addr,omitempty"`  // where the child listens
}

// speaker writes lines, each in one write, so that a line is written whole or not at
// all: a pipe takes that many bytes atomically.
type speaker struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *speaker) say(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it is made of strings and numbers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.w.Write(append(text, '\n')); err != nil {
		os.Exit(1) // the rig is gone
	}
}

func (s *speaker) note(e history.Event) { s.say(line{Event: &e}) }

// workerConfig is the first line that a worker reads. The others are jobs.
type workerConfig struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// workerProcess makes the deliveries that it reads until there are no more.
func workerProcess(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(bufio.NewReader(in))
	var c workerConfig
	if err := lines.Decode(&c); err != nil {
		return err
	}
	s := &speaker{w: out}
	w := newWorker(c, s.note)
	for {
		var j job
		if err := lines.Decode(&j); err != nil {
			return nil // no more
		}
		go func() {
			w.deliver(context.Background(), j)
			s.say(line{Ended: j.ID})
		}()
	}
}

func newWorker(c workerConfig, note func(history.Event)) *worker {
	return &worker{
		client: &client{name: c.Name, nodes: c.Nodes, note: note, wire: newWire(), ids: new(atomic.Int64)},
		effect: note, unit: 200 * time.Millisecond,
	}
}

// upstreamConfig is the first message to the upstream. Of later ones only Earlier counts.
type upstreamConfig struct {
	Seed  uint64 `json:"seed"`
	Brief bool   `json:"brief"` // nothing takes longer than a moment
	// Earlier: nodes run an earlier program, see mayRefuse.
	Earlier bool `json:"earlier"`
}

// upstreamProcess serves until its input ends.
func upstreamProcess(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	var c upstreamConfig
	if err := lines.Decode(&c); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &speaker{w: out}
	s.say(line{Addr: l.Addr().String()})
	u := newUpstream(c.Seed, s.note)
	if c.Brief {
		u.work = func(rng *rand.Rand) time.Duration { return min(work(rng), lease/6) }
	}
	u.earlier.Store(c.Earlier)
	go func() {
		for lines.Decode(&c) == nil {
			u.earlier.Store(c.Earlier)
		}
		_ = l.Close()
	}()
	server := &http.Server{Handler: u}
	if err := server.Serve(l); err != http.ErrServerClosed {
		return nil // the rig has closed the input
	}
	return nil
}

// crew is a process of workers, which can be killed in the middle of its deliveries.
type crew struct {
	*process
	run *run

	mu  sync.Mutex
	now *box
}

// box holds the deliveries of one process.
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
