package semelhttp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestScripts runs testdata/*.txt. A file has settings, then cases, each of which
// starts in a fresh world with the settings of the file:
//
//	handler NAME              what is guarded; see handlers_test.go
//	route NAME=VALUE ...      the route; see settings_test.go
//	listen ADDRESS            the server's own address
//	=== a sentence            begins a case
//	> line                    a line of a request; after an empty one, the body
//	>| "quoted"               body bytes with Go escapes, and no line end
//	>* COUNT TEXT             body text, repeated
//	< 201                     sends the request, and expects this status
//	< Name: value             expects this header, once
//	< !Name                   expects no such header
//	< trailer Name: value     expects this trailer
//	< informational 103       expects this answer before the final one
//	< closed                  expects that the connection breaks off
//	<                         begins the expected body
//	< text                    a line of it
//	<~ text                   expects this text in the body
//	let NAME member           takes $NAME from the JSON of the last body
//	background NAME           sends the request and lets it wait
//	await NAME                expects its answer with the lines that follow
//	hang up NAME              closes its connection
//	release                   lets waiting handlers go on
//	pass DURATION             lets virtual time pass
//	store down, store up      switches the store off and on
//	runs N                    expects so many executions so far
//
// A request gets Host, Connection: close, Content-Length and, unless it has one,
// Authorization: Bearer alice. "Authorization: none" leaves that out.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut("\n"+string(text), "\n=== ")
			firstLine := strings.Count(head, "\n") + 1
			for block := range strings.SplitSeq(rest, "\n=== ") {
				name, body, _ := strings.Cut(block, "\n")
				at := firstLine
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { runCase(t, file, at, head, body) })
				})
				firstLine += strings.Count(block, "\n") + 1
			}
		})
	}
}

// script is one case while it runs.
type script struct {
	t       *testing.T
	w       *world
	where   string // file and line
	request []string
	body    bytes.Buffer
	inBody  bool
	expect  bool // the lines that follow expect
	answer  *answer
	atBody  bool
	want    []string // of the body
	calls   map[string]*exchange
	vars    map[string]string
}

// exchange is a request under way.
type exchange struct {
	conn net.Conn
	done chan struct{}
	answer
}

// answer is the answer that arrived.
type answer struct {
	resp          *http.Response
	body          []byte
	informational []int
	err           error
}

func runCase(t *testing.T, file string, line int, settings, body string) {
	s := &script{t: t, calls: map[string]*exchange{}, vars: map[string]string{}}
	cfg := newSettings(t)
	for text := range strings.SplitSeq(settings, "\n") {
		cfg.apply(text)
	}
	var stop func()
	for text := range strings.SplitSeq(body, "\n") {
		line++
		s.where = fmt.Sprintf("%s:%d", file, line)
		if s.w == nil {
			if cfg.apply(text) {
				continue
			}
			s.w = cfg.world(t)
			stop = s.w.start()
		}
		s.step(text)
	}
	s.endOfAnswer()
	for name, x := range s.calls {
		t.Errorf("%s: nobody awaits %s", s.where, name)
		_ = x.conn.Close()
	}
	if stop != nil {
		stop()
	}
}

func (s *script) step(text string) {
	s.t.Helper()
	for name, value := range s.vars {
		text = strings.ReplaceAll(text, "$"+name, value)
	}
	switch {
	case strings.HasPrefix(text, "<"):
		if !s.expect {
			s.answer = s.send().wait()
			s.expect = true
			synctest.Wait() // for what is done behind an answer, as when a connection was taken over
		}
		s.check(text)
		return
	case strings.HasPrefix(text, ">|"):
		part, err := strconv.Unquote(strings.TrimSpace(text[2:]))
		if err != nil {
			s.t.Fatalf("%s: %v", s.where, err)
		}
		s.body.WriteString(part)
		return
	case strings.HasPrefix(text, ">*"):
		count, part, _ := strings.Cut(strings.TrimSpace(text[2:]), " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			s.t.Fatalf("%s: %v", s.where, err)
		}
		s.body.WriteString(strings.Repeat(part, n))
		return
	case strings.HasPrefix(text, ">"):
		s.endOfAnswer()
		s.line(strings.TrimPrefix(strings.TrimPrefix(text, ">"), " "))
		return
	}
	words := strings.Fields(text)
	if len(words) == 0 || words[0] == "#" {
		return
	}
	s.endOfAnswer()
	switch command := words[0]; command {
	case "background":
		s.calls[words[1]] = s.send()
		synctest.Wait()
	case "await":
		x, ok := s.calls[words[1]]
		if !ok {
			s.t.Fatalf("%s: nothing called %s is under way", s.where, words[1])
		}
		delete(s.calls, words[1])
		s.answer, s.expect = x.wait(), true
	case "hang":
		x := s.calls[words[2]]
		delete(s.calls, words[2])
		_ = x.conn.Close()
		<-x.done
		synctest.Wait()
	case "release":
		s.w.release()
		synctest.Wait()
	case "pass":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatalf("%s: %v", s.where, err)
		}
		<-time.After(d)
		synctest.Wait()
	case "store":
		s.w.store.down.Store(words[1] == "down")
	case "runs":
		if got := strconv.FormatInt(s.w.runs.Load(), 10); got != words[1] {
			s.t.Errorf("%s: the handler ran %s times, not %s", s.where, got, words[1])
		}
	case "let":
		var doc map[string]any
		if err := json.Unmarshal(s.answer.body, &doc); err != nil {
			s.t.Fatalf("%s: %v in %s", s.where, err, s.answer.body)
		}
		value, ok := doc[words[2]].(string)
		if !ok {
			s.t.Fatalf("%s: no member %s in %s", s.where, words[2], s.answer.body)
		}
		s.vars[words[1]] = value
	default:
		s.t.Fatalf("%s: what is %q?", s.where, text)
	}
}

// line adds a line to the request.
func (s *script) line(text string) {
	switch {
	case s.inBody:
		if s.body.Len() > 0 {
			s.body.WriteByte('\n')
		}
		s.body.WriteString(text)
	case text == "":
		s.inBody = true
	default:
		s.request = append(s.request, text)
	}
}

// send sends the request that was gathered.
func (s *script) send() *exchange {
	s.t.Helper()
	if len(s.request) == 0 {
		s.t.Fatalf("%s: there is no request to send", s.where)
	}
	var b bytes.Buffer
	has := func(name string) bool {
		for _, l := range s.request[1:] {
			if n, _, _ := strings.Cut(l, ":"); strings.EqualFold(n, name) {
				return true
			}
		}
		return false
	}
	b.WriteString(s.request[0] + " HTTP/1.1\r\n")
	for _, l := range s.request[1:] {
		if l != "Authorization: none" {
			b.WriteString(l + "\r\n")
		}
	}
	for _, l := range []string{"Host: api.example", "Connection: close", "Authorization: Bearer alice"} {
		if name, _, _ := strings.Cut(l, ":"); !has(name) {
			b.WriteString(l + "\r\n")
		}
	}
	if s.body.Len() > 0 && !has("Content-Length") && !has("Transfer-Encoding") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", s.body.Len())
	}
	b.WriteString("\r\n")
	b.Write(s.body.Bytes())
	method, _, _ := strings.Cut(s.request[0], " ")
	s.request, s.inBody = nil, false
	s.body.Reset()

	x := &exchange{conn: s.w.pipes.dial(), done: make(chan struct{})}
	go func() {
		defer close(x.done)
		go func() { _, _ = x.conn.Write(b.Bytes()) }() // the server may answer before it has read all
		x.read(method)
	}()
	return x
}

// read reads the answer.
func (x *exchange) read(method string) {
	defer x.conn.Close()
	br := bufio.NewReader(x.conn)
	for {
		if x.resp, x.err = http.ReadResponse(br, &http.Request{Method: method}); x.err != nil {
			return
		}
		if x.resp.StatusCode >= 200 || x.resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
		x.informational = append(x.informational, x.resp.StatusCode)
	}
	if x.resp.StatusCode == http.StatusSwitchingProtocols {
		x.body, x.err = io.ReadAll(br)
		return
	}
	x.body, x.err = io.ReadAll(x.resp.Body)
}

func (x *exchange) wait() *answer {
	<-x.done
	return &x.answer
}

// check compares the answer with one expectation.
func (s *script) check(text string) {
	s.t.Helper()
	a := s.answer
	if rest, ok := strings.CutPrefix(text, "<~"); ok {
		if rest = strings.TrimSpace(rest); !bytes.Contains(a.body, []byte(rest)) {
			s.t.Errorf("%s: the body has no %s:\n%s", s.where, rest, a.body)
		}
		return
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "<"), " ")
	if text == "closed" {
		if a.err == nil {
			s.t.Errorf("%s: the connection did not break off; status %s\n%s", s.where, a.resp.Status, a.body)
		}
		return
	}
	if a.resp == nil || a.err != nil {
		s.t.Fatalf("%s: no whole answer: %v\n%s", s.where, a.err, a.body)
	}
	if s.atBody {
		s.want = append(s.want, text)
		return
	}
	name, value, isHeader := strings.Cut(text, ": ")
	switch {
	case text == "":
		s.atBody = true
	case strings.HasPrefix(text, "!"):
		if got, ok := a.resp.Header[http.CanonicalHeaderKey(text[1:])]; ok {
			s.t.Errorf("%s: %s is %q", s.where, text[1:], got)
		}
	case strings.HasPrefix(text, "informational "):
		if got := fmt.Sprint("informational ", strings.Trim(fmt.Sprint(a.informational), "[]")); got != text {
			s.t.Errorf("%s: got %s", s.where, got)
		}
	case strings.HasPrefix(text, "trailer "):
		name = strings.TrimPrefix(name, "trailer ")
		if got := a.resp.Trailer.Get(name); got != value {
			s.t.Errorf("%s: trailer %s is %q", s.where, name, got)
		}
	case isHeader:
		if got := a.resp.Header[http.CanonicalHeaderKey(name)]; len(got) != 1 || got[0] != value {
			s.t.Errorf("%s: %s is %q, not %q", s.where, name, got, value)
		}
	default:
		if got := strconv.Itoa(a.resp.StatusCode); got != text {
			s.t.Errorf("%s: status %s, not %s\n%s", s.where, got, text, a.body)
		}
	}
}

// endOfAnswer compares the body once all its lines are known.
func (s *script) endOfAnswer() {
	s.t.Helper()
	if s.atBody {
		if want := strings.Join(s.want, "\n"); string(s.answer.body) != want {
			s.t.Errorf("%s: the body is\n%s\nnot\n%s", s.where, s.answer.body, want)
		}
	}
	s.expect, s.atBody, s.want = false, false, nil
}
