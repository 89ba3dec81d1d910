package pebblestore

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

// The test binary starts itself as a child process, which works on a store and
// writes its history to a pipe: each try before it calls the store, each answer
// after the store has given it. What is in the pipe outlives the child.

const childEnv = "PEBBLESTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(childMain(text))
	}
	os.Exit(m.Run())
}

// orders are what a child is started with.
type orders struct {
	Dir  string
	Run  int // counts the children that had the directory
	Seed uint64
	// Steps of each caller, after which the store is closed.
	Steps int
	// Forgets: what was not synced is lost when the child ends.
	Forgets bool
	// Fault is what the file system does: see disk.
	Fault string
	// From is the operation, or the answer to a caller, from which it does.
	From int64
}

// The other words that begin a line: see the verbs of a history.
const (
	wordFound = "found" // stored when the child opened the directory
	wordOpen  = "open"  // all was found; work begins
	wordFault = "fault" // the file system begins to fail
	wordWrong = "wrong" // the child saw what can't be
)

// How a child can end, beside by a signal, which has the code -1. The codes up to
// 2 are those of the store and of a panic.
const (
	codeDone  = 0
	codeFatal = 1
	codePanic = 2
	codeWrong = 10 + iota
	codeOpen  // the store could not be opened
	codeError // it gave a caller an error
	codeClose // it could not be closed
)

// childMain is the child. It works until it is done or killed, or the store ends
// it.
func childMain(text string) (code int) {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(wordWrong, err)
		return codeWrong
	}
	code, err := o.work(context.Background())
	if errors.Is(err, errWrong) {
		fmt.Println(wordWrong, err)
		return codeWrong
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func (o *orders) work(ctx context.Context) (code int, err error) {
	h := newHistory(int64(o.Run) << 16)
	d := newDisk(o.Fault, o.From, o.Forgets)
	s, err := Open(o.Dir, &Options{FS: d.fs(), MemTableBytes: smallTables})
	if err != nil {
		return codeOpen, err
	}
	stored, err := inspect(ctx, s)
	if err != nil {
		if !d.fired.Load() {
			err = fmt.Errorf("%w: %w", errWrong, err)
		}
		return codeError, err
	}
	for id, is := range stored {
		if err := h.enter(verbTry, id, is.state, written(is.version)); err != nil {
			return codeWrong, err
		}
		fmt.Println(wordFound, int64(written(is.version)), is.state, id.Key)
	}
	h.resume(stored)
	fmt.Println(wordOpen)
	answers := int64(0)
	h.tell = func(verb string, id semel.ID, state semel.State, m mark) {
		fmt.Println(verb, int64(m), cmp.Or(state.String(), "-"), id.Key)
		if verb != verbTry {
			if answers++; answers == o.From {
				d.begin()
			}
		}
	}
	err = crowd(ctx, s, h, rand.New(rand.NewPCG(o.Seed, uint64(o.Run))), o.Run, stored, o.Steps)
	closed := s.Close()
	switch {
	case err != nil:
		return codeError, err
	case closed != nil:
		return codeClose, closed
	}
	return codeDone, nil
}

// child is a running child.
type child struct {
	cmd    *exec.Cmd
	lines  chan childLine
	stderr bytes.Buffer
}

// childLine is one line of a child's history.
type childLine struct {
	word  string
	mark  mark
	state semel.State
	id    semel.ID
	text  string // of the whole line
}

func startChild(t *testing.T, o orders) *child {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0]), lines: make(chan childLine)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	return c
}

// read sends the lines until the child has ended. A line that was cut off is
// none.
func (c *child) read(out io.Reader) {
	defer close(c.lines)
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadString('\n')
		if err != nil {
			return
		}
		l := childLine{text: strings.TrimSuffix(text, "\n")}
		word, rest, _ := strings.Cut(l.text, " ")
		l.word = word
		if word != wordOpen && word != wordFault && word != wordWrong {
			var state string
			if _, err := fmt.Sscan(rest, &l.mark, &state); err != nil {
				l.word = wordWrong
			}
			if state != "-" && l.state.UnmarshalText([]byte(state)) != nil {
				l.word = wordWrong
			}
			if f := strings.SplitN(rest, " ", 3); len(f) == 3 {
				l.id = testID(f[2])
			}
		}
		c.lines <- l
	}
}

// kill ends the child as nothing else does: at once, without a last word.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// ended waits for the child's end and returns its exit code, which is -1 after
// a signal.
func (c *child) ended(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// follow enters the lines of a child into a history, and holds what it found
// against that, until the child has ended. It kills the child after so many
// answers, or a while after it was started or has opened the store.
type follower struct {
	answers              int           // 0: any number
	afterStart, whenOpen time.Duration // 0: for ever
}

// report is what came of a child.
type report struct {
	opened     bool
	found      int
	answers    int
	fault      string // the file operation that failed, by its kind and path
	triedLater map[semel.ID]mark
	toldLater  []string // answers to calls that began after that
}

func (f follower) follow(t *testing.T, c *child, h *history) (r report) {
	t.Helper()
	timer := func(d time.Duration) <-chan time.Time {
		if d == 0 {
			return nil
		}
		return time.After(d)
	}
	start, open := timer(f.afterStart), timer(0)
	stored := found{}
	r.triedLater = map[semel.ID]mark{}
	for {
		select {
		case <-start:
			c.kill(t)
		case <-open:
			c.kill(t)
		case l, ok := <-c.lines:
			if !ok {
				return r
			}
			switch l.word {
			case wordFound:
				stored[l.id] = foundRecord{int64(l.mark / 2), l.state}
			case wordOpen:
				if err := h.compare(stored); err != nil {
					t.Fatal(err)
				}
				h.resume(stored)
				r.opened, r.found = true, len(stored)
				open = timer(f.whenOpen)
			case wordFault:
				r.fault = l.text
			case wordWrong:
				t.Fatalf("the child says: %s\n%s", l.text, c.stderr.String())
			default:
				if err := h.enter(l.word, l.id, l.state, l.mark); err != nil {
					t.Fatal(err)
				}
				if l.word != verbTry {
					if r.answers++; r.answers == f.answers {
						c.kill(t)
					}
				}
				switch {
				case r.fault != "" && l.word == verbTry:
					r.triedLater[l.id] = l.mark
				case r.fault != "" && r.triedLater[l.id] == l.mark:
					r.toldLater = append(r.toldLater, l.text)
				}
			}
		}
	}
}
