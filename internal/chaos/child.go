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
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/history"
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

// upstreamConfig is what the upstream reads.
type upstreamConfig struct {
	Seed  uint64 `json:"seed"`
	Brief bool   `json:"brief"` // nothing takes longer than a moment
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
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = l.Close()
	}()
	u := newUpstream(c.Seed, s.note)
	if c.Brief {
		u.work = func(rng *rand.Rand) time.Duration { return min(work(rng), lease/6) }
	}
	server := &http.Server{Handler: u}
	if err := server.Serve(l); err != http.ErrServerClosed {
		return nil // the rig has closed the input
	}
	return nil
}
