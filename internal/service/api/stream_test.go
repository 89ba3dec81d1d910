package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// reader follows the stream of decisions.
type reader struct {
	t     *testing.T
	res   *http.Response
	lines *bufio.Scanner
	stop  context.CancelFunc
}

// message is one event as it arrived.
type message struct {
	ID    int64
	Event string
	Data  map[string]any
}

// follow opens the stream. When it returns, the server has the reader.
func (w *world) follow(as, query string, headers ...string) *reader {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", w.admin.URL+"/v1/decisions?"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+as)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		w.t.Fatalf("status %d, %s: %s", res.StatusCode, res.Header.Get("Content-Type"), text)
	}
	r := &reader{t: w.t, res: res, lines: bufio.NewScanner(res.Body), stop: stop}
	w.t.Cleanup(r.close)
	if !r.lines.Scan() || !strings.HasPrefix(r.lines.Text(), ":") {
		w.t.Fatalf("the stream does not begin with a comment: %q", r.lines.Text())
	}
	return r
}

func (r *reader) close() {
	r.stop()
	r.res.Body.Close()
}

// next is the next event; ok is false at the end of the stream.
func (r *reader) next() (m message, ok bool) {
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "id":
			m.ID, _ = strconv.ParseInt(value, 10, 64)
		case "event":
			m.Event = value
		case "data":
			if err := json.Unmarshal([]byte(value), &m.Data); err != nil {
				r.t.Fatal(err)
			}
		case "":
			if m.Event != "" {
				return m, true
			}
		}
	}
	return m, false
}

func (r *reader) want(event, member, value string) message {
	r.t.Helper()
	m, ok := r.next()
	if !ok {
		r.t.Fatalf("the stream ended: %v", r.lines.Err())
	}
	if got, _ := m.Data[member].(string); m.Event != event || got != value {
		r.t.Fatalf("%+v instead of %s with %s %s", m, event, member, value)
	}
	return m
}

func TestDecisionStream(t *testing.T) {
	t.Parallel()
	t.Run("decisions, ends and purges arrive in their order", func(t *testing.T) {
		w := newWorld(t)
		r := w.follow("viewer", "")
		x := w.begin("shop", "charge", "k")
		w.replay("shop", "charge", "k").want(409)
		w.on(x, "shop", "complete", "").want(200)
		w.send("operator", "POST", "/v1/records/"+x.str("record.id")+"/purge", `{"reason":"by hand"}`).want(204)
		first := r.want("decided", "decision", "execute")
		if first.Data["record"] != x.str("record.id") || first.Data["tenant"] != "acme" || first.Data["operation"] != "charge" {
			t.Errorf("%+v", first)
		}
		if m := r.want("decided", "decision", "in_flight"); m.ID != first.ID+1 {
			t.Errorf("event %d follows %d", m.ID, first.ID)
		}
		r.want("ended", "disposition", "completed")
		r.want("purged", "reason", "by hand")
	})

	t.Run("every event is as described", func(t *testing.T) {
		w := newWorld(t)
		r := w.follow("root", "")
		id := semel.ID{Operation: "charge", Key: "k"}
		ev := w.api.observer.Events()
		ev.Decided(semel.Decided{ID: id, Decision: semel.InFlight, RetryAfter: time.Second, Waited: time.Second, At: time.Now()})
		ev.Ended(semel.Ended{ID: id, Held: true, HeldReason: "h", By: "reaper", At: time.Now()})
		ev.LeaseLost(semel.LeaseLost{ID: id, Err: &semel.Error{Code: semel.CodeLeaseLost, Message: "too late"}})
		ev.LeaseLost(semel.LeaseLost{ID: id, Err: errors.New("a driver's words")})
		ev.Purged(semel.Purged{Count: 7})
		schemas := w.checks[w.admin.URL]
		for _, want := range []string{"DecidedEvent", "EndedEvent", "LeaseLostEvent", "LeaseLostEvent", "PurgedEvent"} {
			m, ok := r.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			for _, fault := range schemas.faults(map[string]any{"$ref": "#/components/schemas/" + want}, m.Data, want) {
				t.Error(fault)
			}
			if reason, _ := m.Data["reason"].(string); strings.Contains(reason, "driver") {
				t.Errorf("%+v", m)
			}
		}
	})

	t.Run("filters and the tenant bound what arrives", func(t *testing.T) {
		w := newWorld(t)
		readers := map[string]*reader{
			"all": w.follow("root", ""), "acme": w.follow("viewer", ""), "chosen": w.follow("root", "tenant=evil"), "operation": w.follow("root", "operation=retry"),
			"evil": w.follow("evilroot", ""),
		}
		w.begin("stranger", "charge", "1")
		w.begin("shop", "charge", "2")
		w.begin("shop", "retry", "3")
		w.api.observer.Events().Purged(semel.Purged{Count: 9})
		w.begin("stranger", "retry", "4")
		w.begin("shop", "mail", "5")
		for name, want := range map[string]string{"all": "1 2 3 purged 4 5", "acme": "2 3 5", "chosen": "1 4", "operation": "3 4", "evil": "1 4"} {
			var got []string
			for range strings.FieldsSeq(want) {
				m, ok := readers[name].next()
				if !ok {
					t.Fatal("the stream ended")
				}
				text := m.Event
				if text == "decided" {
					id, err := store.DecodeID(m.Data["record"].(string))
					if err != nil {
						t.Fatal(err)
					}
					text = id.Key
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v instead of %s", name, got, want)
			}
		}
		w.send("viewer", "GET", "/v1/decisions?tenant=evil", "").refused(403, "forbidden")
		w.sendTo(w.admin.URL, "shop", "GET", "/v1/decisions", "").refused(403, "forbidden")
		w.send("viewer", "GET", "/v1/decisions", "", "Last-Event-ID", "x").refused(400, "invalid_call")
		w.send("viewer", "GET", "/v1/decisions", "", "Last-Event-ID", "99999999999999999999").refused(400, "invalid_call")
	})

	t.Run("a reader that comes back goes on where it was", func(t *testing.T) {
		w := newWorld(t)
		r := w.follow("viewer", "")
		w.begin("shop", "charge", "1")
		last := r.want("decided", "decision", "execute").ID
		r.close()
		w.begin("shop", "charge", "2")
		w.begin("shop", "charge", "3")
		r = w.follow("viewer", "", "Last-Event-ID", strconv.FormatInt(last, 10))
		for i := range int64(2) {
			if m := r.want("decided", "decision", "execute"); m.ID != last+1+i {
				t.Errorf("event %d after %d", m.ID, last)
			}
		}
	})

	t.Run("a reader that was away for too long is told what it missed", func(t *testing.T) {
		w := newWorld(t)
		r := w.follow("viewer", "")
		w.begin("shop", "charge", "1")
		last := r.want("decided", "decision", "execute").ID
		r.close()
		ev := w.api.observer.Events()
		for range ringSize + 10 {
			ev.Decided(semel.Decided{ID: semel.ID{Tenant: "acme", Operation: "charge", Key: "k"}, Decision: semel.Replay})
		}
		r = w.follow("viewer", "", "Last-Event-ID", strconv.FormatInt(last, 10))
		gap, _ := r.next()
		if gap.Event != "gap" || gap.ID != 0 || int64(gap.Data["after"].(float64)) != last || int64(gap.Data["next"].(float64)) != last+11 {
			t.Fatalf("%+v after %d", gap, last)
		}
		for i := range int64(ringSize) {
			if m := r.want("decided", "decision", "replay"); m.ID != last+11+i {
				t.Fatalf("event %d instead of %d", m.ID, last+11+i)
			}
		}
	})

	t.Run("the numbers of another process are a gap, not a match", func(t *testing.T) {
		w := newWorld(t)
		for _, last := range []string{"17", "9000000000000000"} {
			r := w.follow("viewer", "", "Last-Event-ID", last)
			if m, _ := r.next(); m.Event != "gap" {
				t.Errorf("%+v", m)
			}
			w.begin("shop", "charge", "k"+last)
			r.want("decided", "decision", "execute")
			r.close()
		}
	})

	t.Run("a reader that does not read is cut off, and nobody waits for it", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.bounds = usual; o.bounds.streamTime = 20 * time.Millisecond })
		target, err := url.Parse(w.admin.URL)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", target.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer viewer\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		// The answer has begun, so the reader has joined. From here on it reads nothing,
		// until the server gives up.
		id := semel.ID{Tenant: "acme", Operation: "charge", Key: strings.Repeat("k", 1000)}
		decided, ring := w.api.observer.Events().Decided, &w.api.observer.ring
		for joined := true; joined; {
			if t.Context().Err() != nil {
				t.Fatal("the reader was not cut off")
			}
			for range 1000 {
				decided(semel.Decided{ID: id, Decision: semel.Replay})
			}
			ring.mu.Lock()
			joined = ring.readers.Len() > 0
			ring.mu.Unlock()
		}
	})

	t.Run("a heartbeat breaks the silence, and closing ends the stream", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.bounds = usual; o.bounds.heartbeat = time.Millisecond })
		r := w.follow("viewer", "")
		for heard := 0; heard < 2; {
			if !r.lines.Scan() {
				t.Fatal(r.lines.Err())
			}
			if r.lines.Text() == ": still here" {
				heard++
			}
		}
		w.api.Close()
		w.api.Close()
		if m, ok := r.next(); ok {
			t.Errorf("%+v", m)
		}
	})
}

func BenchmarkObserver(b *testing.B) {
	decided := NewObserver(memstore.New()).Events().Decided
	ev := semel.Decided{ID: semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "order-1"}, Decision: semel.Replay}
	b.ReportAllocs()
	for b.Loop() {
		decided(ev)
	}
}
