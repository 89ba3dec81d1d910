package semelproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
)

// A script is the bytes of one connection and what comes of them:
//
//	# comment
//	read_timeout 200ms     the server's; otherwise it has none for bodies
//	unguarded sse          a kind that the route lets pass
//	> TEXT                 bytes to send, with \r \n \t \0 \\ and \xNN; nothing is added
//	* 1000 TEXT            the same, repeated
//	close                  say that no more bytes come
//	< 201                  the status of the next answer
//	<~ TEXT                its body has this text
//	<: Name: value         it has this header
//	< closed               the server has closed the connection
//	upstream 1             how many requests the upstream got in all
//	first METHOD URI       the first of them
//	first: Name: value     it has this header, once, with this value
//	first! Name            it does not have this header
//	first~ TEXT            its body is this text
//
// What is sent is sent at once, before anything is read.
type script struct {
	readTimeout time.Duration
	unguarded   []semelproxy.Kind
	send        []byte
	closeWrite  bool
	expect      []string
}

func readScript(t *testing.T, file string) script {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s script
	for n, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "read_timeout":
			if s.readTimeout, err = time.ParseDuration(rest); err != nil {
				t.Fatalf("%s:%d: %v", file, n+1, err)
			}
		case "unguarded":
			s.unguarded = append(s.unguarded, semelproxy.Kind(rest))
		case ">":
			s.send = append(s.send, unescape(t, rest)...)
		case "*":
			count, text, _ := strings.Cut(rest, " ")
			times, err := strconv.Atoi(count)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, n+1, err)
			}
			s.send = append(s.send, strings.Repeat(unescape(t, text), times)...)
		case "close":
			s.closeWrite = true
		case "<", "<~", "<:", "upstream", "first", "first:", "first!", "first~":
			s.expect = append(s.expect, line)
		default:
			t.Fatalf("%s:%d: %q is no command", file, n+1, word)
		}
	}
	if len(s.send) == 0 || len(s.expect) < 2 || !strings.Contains(strings.Join(s.expect, "\n"), "upstream ") {
		t.Fatalf("%s: a script sends something, and says what is answered and how often the upstream is called", file)
	}
	return s
}

// unescape reads what Go writes in double quotes.
func unescape(t *testing.T, text string) string {
	t.Helper()
	text = strings.ReplaceAll(strings.ReplaceAll(text, `\0`, `\x00`), `"`, `\"`)
	out, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return out
}

func TestRawScripts(t *testing.T) {
	clause.Proves(t, "IDS-IX.3")
	files, err := filepath.Glob("testdata/raw/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Fatalf("%d scripts, want at least 30", len(files))
	}
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), "_", " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runScript(t, readScript(t, file))
		})
	}
}

func runScript(t *testing.T, s script) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, func(w *world, o *semelproxy.Options) {
		w.server.ReadTimeout, w.server.ReadHeaderTimeout = s.readTimeout, s.readTimeout
		o.Unguarded = s.unguarded
		o.Identity, o.TenantHeader = func(*http.Request) (string, string, error) { return "acme", "shop", nil }, "X-Tenant"
	})
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // so that a hanging server is a failure
	sent := make(chan struct{})
	go func() { // a server that refuses early stops reading
		defer close(sent)
		_, _ = conn.Write(s.send)
		if s.closeWrite {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	in := bufio.NewReader(conn)
	var last reply
	for _, line := range s.expect {
		word, want, _ := strings.Cut(line, " ")
		var fault string
		switch word {
		case "<":
			if want == "closed" {
				if b, err := in.ReadByte(); err == nil {
					fault = fmt.Sprintf("it is open and sent %q", b)
				} else if e, ok := err.(net.Error); ok && e.Timeout() {
					fault = "it is open"
				}
				break
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: no answer: %v", line, err)
			}
			body, err := io.ReadAll(resp.Body)
			last = reply{resp, string(body), err}
			if strconv.Itoa(resp.StatusCode) != want {
				fault = fmt.Sprintf("%d %q", resp.StatusCode, body)
			}
		case "<~":
			if !strings.Contains(last.body, want) {
				fault = last.body
			}
		case "<:":
			fault = headerFault(last.Header, want)
		case "upstream":
			<-sent
			if got := up.count(); strconv.Itoa(got) != want {
				fault = strconv.Itoa(got)
			}
		default:
			fault = requestFault(up.requests()[0], word, want)
		}
		if fault != "" {
			t.Errorf("%s: got %s", line, fault)
		}
	}
}

func requestFault(r seen, word, want string) string {
	switch word {
	case "first":
		if got := r.Method + " " + r.RequestURI; got != want {
			return got
		}
	case "first:":
		return headerFault(r.Header, want)
	case "first!":
		if v, ok := r.Header[want]; ok {
			return fmt.Sprintf("%q", v)
		}
	case "first~":
		if r.body != want {
			return fmt.Sprintf("%q", r.body)
		}
	}
	return ""
}

func headerFault(h http.Header, want string) string {
	name, value, _ := strings.Cut(want, ": ")
	if v := h[name]; len(v) != 1 || v[0] != value {
		return fmt.Sprintf("%q", v)
	}
	return ""
}
