package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// streaming has the server stream two events and its response, and stop before the second one.
// The fields, the order of members and the spelling are those of servers in the field.
func (w *world) streaming() (release chan struct{}) {
	release = make(chan struct{})
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, params object) {
		token := member(params, "_meta", "progressToken")
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := 1; i <= 2; i++ {
			if i == 2 {
				<-release
			}
			fmt.Fprintf(rw, "id: %d\nevent: message\ndata: {\"method\":\"notifications/progress\",\"params\":{\"progress\":%d,\"progressToken\":%v},\"jsonrpc\":\"2.0\"}\n\n", i, i, token)
			_ = http.NewResponseController(rw).Flush()
		}
		fmt.Fprintf(rw, "event: message\nid: 3\ndata: {\"result\":{\"content\": [{\"type\":\"text\",\"text\":\"ok\"}]},\"jsonrpc\":\"2.0\",\"id\":%s}\n\n", id)
	}
	return release
}

// progressing is a call that asks for progress under a token of its own, as its id is, and has a key
// unless that is empty.
func (w *world) progressing(v version, key string, header ...string) (id string, r *http.Request) {
	id = fmt.Sprint(ids.Add(1))
	meta := `"progressToken":` + id
	if key != "" {
		meta += `,"idempotency-key":"` + key + `"`
	}
	_, raw := v.body("tools/call", `"name":"pay","arguments":{}`, meta)
	raw = strings.Replace(raw, fmt.Sprintf(`"id":%d`, ids.Load()), `"id":`+id, 1)
	return id, w.request(v, raw, append([]string{"Mcp-Name", "pay"}, header...)...)
}

// start sends a request whose answer is read up to its first line.
func (w *world) start(r *http.Request) (resp *http.Response, in *bufio.Reader) {
	w.t.Helper()
	resp, err := newClient(w.t).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	in = bufio.NewReader(resp.Body)
	if line, err := in.Peek(3); err != nil {
		w.t.Fatalf("%q, %v", line, err)
	}
	return resp, in
}

var marks = regexp.MustCompile(`"_meta":\{("io\.github\.semelhq/[a-z]+":("[a-z]+"|true),?)+\},?`)

// plainly is a stream without Semel's marks, and with X for the id that was asked under.
func plainly(text, id string) string {
	text = marks.ReplaceAllString(text, "")
	return strings.NewReplacer(`"id":`+id+`}`, `"id":X}`, `"progressToken":`+id+`}`, `"progressToken":X}`).Replace(text)
}

// A stream that is cut in the middle and asked for again, under another id and token of progress, is
// byte for byte one that wasn't cut, and the server was called once. So is one that is asked for
// after its end, which says that it is finished.
func TestStreamCutAndAskedAgain(t *testing.T) {
	clause.Proves(t, "IDS-IX.1", "IDS-IX.3")
	for _, v := range all {
		for _, key := range []string{"k-1", ""} {
			t.Run(fmt.Sprintf("%s, key %q", v, key), func(t *testing.T) {
				whole := seen(t, mcp.GatewayOptions{})
				close(whole.streaming())
				id, r := whole.progressing(v, key)
				_, in := whole.start(r)
				text, err := io.ReadAll(in)
				want := plainly(string(text), id)
				if err != nil || strings.Count(want, `"progressToken":X`) != 2 || strings.Count(want, `"id":X`) != 1 {
					t.Fatalf("%s, %v", text, err)
				}

				w := seen(t, mcp.GatewayOptions{})
				release := w.streaming()
				_, r = w.progressing(v, key)
				first, _ := w.start(r)
				_ = first.Body.Close()
				var got [3]string
				var asked [3]string
				for i := range got {
					asked[i], r = w.progressing(v, key)
					resp, in := w.start(r)
					if i == 0 {
						close(release)
					}
					text, err := io.ReadAll(in)
					if got[i] = string(text); err != nil || plainly(got[i], asked[i]) != want {
						t.Errorf("%d: %s\ninstead of %s, %v", i, text, want, err)
					}
					how := map[bool]string{true: semelhttp.StreamLive, false: semelhttp.StreamFinished}[i == 0]
					if resp.Header.Get(semelhttp.StreamHeader) != how || !strings.Contains(got[i], `"io.github.semelhq/stream":"`+how+`"`) {
						t.Errorf("%d: %v\n%s", i, resp.Header, text)
					}
					if key == "" {
						break // the answer has arrived, so the next equal call is another
					}
				}
				if n := w.runs.Load(); n != 1 {
					t.Errorf("%d runs", n)
				}
			})
		}
	}
}

// What a duplicate gets of a stream depends on what it asks for, and on what there is.
func TestStreamForDuplicates(t *testing.T) {
	after := func(t *testing.T, opts mcp.GatewayOptions, header ...string) (*http.Response, string) {
		w := open(t, opts)
		close(w.streaming())
		_, r := w.progressing(modern, "k-1")
		_, in := w.start(r)
		_, _ = io.ReadAll(in)
		_, r = w.progressing(modern, "k-1", header...)
		resp, in := w.start(r)
		text, err := io.ReadAll(in)
		if err != nil || w.runs.Load() != 1 || !strings.Contains(string(text), `"ok"`) {
			t.Errorf("%d runs: %s, %v", w.runs.Load(), text, err)
		}
		return resp, string(text)
	}
	if resp, text := after(t, mcp.GatewayOptions{}, "Last-Event-ID", "1"); strings.Contains(text, `"progress":1`) || !strings.Contains(text, `"progress":2`) {
		t.Errorf("after the first event: %v %s", resp.Header, text)
	}
	if resp, text := after(t, mcp.GatewayOptions{}, "Accept", "application/json"); resp.Header.Get("Content-Type") != "application/json" || strings.Contains(text, "progress\"") {
		t.Errorf("for a client that takes no streams: %v %s", resp.Header, text)
	}
	for _, most := range []int64{200, -1} {
		if resp, text := after(t, mcp.GatewayOptions{MaxStream: most}); strings.Contains(text, "notifications/progress") || resp.Header.Get(semelhttp.StreamHeader) != "" {
			t.Errorf("over the limit: %v %s", resp.Header, text)
		}
	}
}

// A client that gave no token for progress gets none, and a question of the server that was answered
// isn't asked again.
func TestStreamWithoutWhatIsForOthers(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(rw, ": alive\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7}}\n\n")
		fmt.Fprintf(rw, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
		fmt.Fprintf(rw, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
	}
	_, first := w.call(middle, "pay", `{}`, "", `"idempotency-key":"k-1","progressToken":7`)
	_, again := w.call(middle, "pay", `{}`, "", `"idempotency-key":"k-1"`)
	if first.events != 4 || again.events != 2 || !strings.HasPrefix(again.text, ": alive\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"") {
		t.Errorf("%s\nthen %s", first.text, again.text)
	}
}

// A stream that the server breaks off leaves a call that is held. What was recorded comes before the
// refusal, and is never the outcome.
func TestStreamThatBreaksOff(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	w := open(t, mcp.GatewayOptions{})
	release := make(chan struct{})
	w.answer = func(rw http.ResponseWriter, r *http.Request, _ string, _ object) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(rw, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-release
		panic(http.ErrAbortHandler)
	}
	_, r := w.progressing(modern, "k-1")
	_, first := w.start(r)
	_, r = w.progressing(modern, "k-1")
	_, joined := w.start(r)
	close(release)
	for i, in := range []*bufio.Reader{first, joined, nil} {
		if in == nil {
			_, r = w.progressing(modern, "k-1")
			resp, live := w.start(r)
			if in = live; resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamPartial || resp.Header.Get("Idempotency-Replayed") != "" {
				t.Errorf("%v", resp.Header)
			}
		}
		text, err := io.ReadAll(in)
		if said := string(text); err != nil || strings.Count(said, "data: ") != 2 || !strings.Contains(said, "notifications/message") || !strings.Contains(said, `"code":"held"`) || !strings.Contains(said, `"isError":true`) {
			t.Errorf("%d: %s, %v", i, said, err)
		}
	}
	if n := w.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// Whoever joins a stream is asked for as for a replay.
func TestStreamNeedsAuthorization(t *testing.T) {
	var refuse atomic.Bool
	op := operation
	op.Authorize = func(_ context.Context, _ semel.Call, rec store.Record) error {
		if refuse.Load() && rec.Fence > 0 {
			return errors.New("not any more")
		}
		return nil
	}
	w := open(t, mcp.GatewayOptions{Operation: op, Wait: 200 * time.Millisecond})
	release := w.streaming()
	_, r := w.progressing(modern, "k-1")
	_, first := w.start(r)
	refuse.Store(true)
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.code != "in_flight" || strings.Contains(got.text, "progress") {
		t.Errorf("%d %s", got.status, got.text)
	}
	close(release)
	_, _ = io.ReadAll(first)
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.code != "forbidden" || strings.Contains(got.text, "progress") {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// A client that joins 10,000 events and never reads them holds its seat for a bounded time, and
// delays nobody else.
func TestStreamForOneThatNeverReads(t *testing.T) {
	w := behind(t, newServer(), mcp.GatewayOptions{Timeout: 2 * time.Second, Wait: time.Minute, MaxStream: 32 << 20}, semel.Options{MaxWaiters: 1})
	event := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":\"" + strings.Repeat("x", 1000) + "\"}\n\n"
	release, passed := make(chan struct{}), make(chan struct{})
	w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for range 10_000 {
			_, _ = io.WriteString(rw, event)
		}
		close(passed)
		for alive := true; alive; {
			select {
			case <-release:
				alive = false
			case <-time.After(100 * time.Millisecond):
				_, _ = io.WriteString(rw, ": alive\n\n")
				_ = http.NewResponseController(rw).Flush()
			}
		}
		_, _ = io.WriteString(rw, `data: {"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"ok"}]}}`+"\n\n")
	}
	_, r := w.progressing(modern, "k-1")
	_, first := w.start(r)
	var whole []byte
	var read sync.WaitGroup
	read.Go(func() { whole, _ = io.ReadAll(first) })
	<-passed
	_, r = w.progressing(modern, "k-1")
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	for refused := 0; ; refused++ { // until the one seat is free
		_, r = w.progressing(modern, "k-1")
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get(semelhttp.StreamHeader) == "" {
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			continue
		}
		if refused == 0 {
			t.Error("whoever never reads has no seat")
		}
		close(release)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n := strings.Count(string(text), "notifications/message"); err != nil || n != 10_000 || !strings.Contains(string(text), `"ok"`) {
			t.Errorf("%d events, %v", n, err)
		}
		break
	}
	read.Wait()
	if n := strings.Count(string(whole), "notifications/message"); n != 10_000 || w.runs.Load() != 1 {
		t.Errorf("the first got %d events of %d runs", n, w.runs.Load())
	}
}

// TestStreamThatTheServerEndsEarly: before the newest version a server may end a stream before its
// response, and a client reads on after the newest id. The gateway does, and nobody sees that.
func TestStreamThatTheServerEndsEarly(t *testing.T) {
	for _, c := range []struct {
		name   string
		rest   []string // what each further stream has
		ends   string
		status int
	}{
		{"at once", []string{"id: 3\ndata: RESPONSE\n\n"}, `"ok"`, http.StatusOK},
		{"after two more", []string{"id: 3\ndata:\n\n", "id: 4\ndata:\n\n", "id: 5\ndata: RESPONSE\n\n"}, `"ok"`, http.StatusOK},
		{"never", []string{""}, `"code":"held"`, http.StatusMethodNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, mcp.GatewayOptions{})
			var asked string
			var after []string
			w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
				asked = id
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(rw, "id: 1\ndata:\n\nretry: 1\nid: 2\ndata:\n\n")
			}
			w.rest = func(rw http.ResponseWriter, r *http.Request) {
				after = append(after, r.Header.Get("Last-Event-ID"))
				if c.status != http.StatusOK {
					rw.WriteHeader(c.status)
					return
				}
				rw.Header().Set("Content-Type", "text/event-stream")
				response := `{"jsonrpc":"2.0","id":` + asked + `,"result":{"content":[{"type":"text","text":"ok"}]}}`
				fmt.Fprint(rw, strings.Replace(c.rest[len(after)-1], "RESPONSE", response, 1))
			}
			_, first := w.call(middle, "pay", `{}`, "", `"idempotency-key":"k-1"`)
			_, again := w.call(middle, "pay", `{}`, "", `"idempotency-key":"k-1"`)
			if w.runs.Load() != 1 || !strings.Contains(first.text, c.ends) || !strings.Contains(again.text, c.ends) {
				t.Errorf("%d runs: %s\nthen %s", w.runs.Load(), first.text, again.text)
			}
			if want := []string{"2", "3", "4"}[:len(c.rest)]; !slices.Equal(after, want) {
				t.Errorf("asked after %q, want %q", after, want)
			}
		})
	}
}
