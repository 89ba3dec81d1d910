package mcp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// strictly serves a handler so that it is seen what becomes of its answers.
func strictly(t *testing.T, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Listener = semelproxy.Strict(s.Config, s.Listener)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// seen is a world whose gateway sees what becomes of its answers.
func seen(t *testing.T, opts mcp.GatewayOptions) *world {
	w := open(t, opts)
	w.url = strictly(t, w.gateway)
	return w
}

// pay calls a tool without a key, by a client of its own if one is given.
func (w *world) pay(client *http.Client, arguments string, header ...string) *answer {
	w.t.Helper()
	other := *w
	if client != nil {
		other.client = *client
	}
	id, a := other.call(modern, "pay", arguments, "", "", header...)
	if a.id != id {
		w.t.Errorf("asked under %s: %d %s", id, a.status, a.text)
	}
	return a
}

func newClient(t *testing.T) *http.Client {
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (a *answer) echo() bool { return member(a.result, "_meta", "io.github.semelhq/echo") == true }

// TestHonestCalls: two equal calls without a key are two: one after the other has arrived, and
// beside each other on open streams. Their results say that nobody could tell.
func TestHonestCalls(t *testing.T) {
	for _, stream := range []bool{false, true} {
		w := seen(t, mcp.GatewayOptions{})
		w.stream = stream
		for n := 1; n <= 3; n++ {
			got := w.pay(nil, `{"a":1}`)
			if got.said() != fmt.Sprint("run ", n) || got.echo() || got.replayed() || member(got.result, "_meta", "io.github.semelhq/repetition") != "unknown" {
				t.Errorf("stream %t: %s", stream, got.text)
			}
		}
		w.client.CloseIdleConnections() // a clean end
		other := newClient(t)
		if got := w.pay(other, `{"a":1}`); got.said() != "run 4" {
			t.Errorf("by another connection: %s", got.text)
		}
		if got := w.pay(newClient(t), `{"a":1}`); got.said() != "run 5" && runtime.GOOS == "linux" {
			t.Errorf("by another connection, beside an idle one: %s", got.text)
		}
	}
	t.Run("beside each other", func(t *testing.T) {
		w, release := seen(t, mcp.GatewayOptions{}), make(chan struct{})
		w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
			n := run(r)
			<-release
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"n":%d}}`, id, n)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if got := w.pay(newClient(t), `{"a":1}`); got.result == nil || got.replayed() {
					t.Errorf("%s", got.text)
				}
			})
		}
		<-w.began
		<-w.began
		close(release)
		both.Wait()
	})
}

// TestTooManyEqualCalls: the list of equal calls without a known delivery has an end, and the call
// that finds it full didn't run.
func TestTooManyEqualCalls(t *testing.T) {
	const most = 100
	w, release := seen(t, mcp.GatewayOptions{}), make(chan struct{})
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
		if run(r) <= most {
			<-release
		}
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	}
	var all sync.WaitGroup
	for range most {
		all.Go(func() {
			if got := w.pay(newClient(t), `{"a":1}`); got.result == nil || got.echo() {
				t.Errorf("%s", got.text)
			}
		})
	}
	for range most {
		<-w.began
	}
	if got := w.pay(newClient(t), `{"a":1}`); !strings.Contains(got.text, "overloaded") || w.runs.Load() != most {
		t.Errorf("the call after the last one that may wait: %s", got.text)
	}
	close(release)
	all.Wait()
}

// TestLostClient: whoever asks again after the client of the first call is gone joins it while it
// runs, whatever ended the connection; two that were lost are two.
func TestLostClient(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, lost := range []int{1, 2} {
			t.Run(fmt.Sprintf("stream %t, %d lost", stream, lost), func(t *testing.T) {
				w, release := seen(t, mcp.GatewayOptions{}), make(chan struct{})
				w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
					n := run(r)
					if stream {
						rw.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(rw, ": working\n\n")
						_ = http.NewResponseController(rw).Flush()
					}
					select {
					case <-release:
					case <-r.Context().Done():
						t.Error("the call was cancelled")
					}
					text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"run %d"}]}}`, id, n)
					if stream {
						text = "data: " + text + "\n\n"
					}
					_, _ = io.WriteString(rw, text)
				}
				var gone sync.WaitGroup
				var leaving []context.CancelFunc
				for range lost {
					ctx, leave := context.WithCancel(t.Context())
					leaving = append(leaving, leave)
					gone.Go(func() {
						_, raw := modern.body("tools/call", `"name":"pay","arguments":{"a":1}`, "")
						if resp, err := newClient(t).Do(w.request(modern, raw, "Mcp-Name", "pay").WithContext(ctx)); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					})
					<-w.began
				}
				for _, leave := range leaving {
					leave()
				}
				gone.Wait()
				var again sync.WaitGroup
				results := make(chan string, lost)
				for range lost {
					again.Go(func() {
						got := w.pay(newClient(t), `{"a":1}`)
						if !got.echo() || !got.replayed() {
							t.Errorf("%s", got.text)
						}
						results <- got.said()
					})
				}
				close(release)
				again.Wait()
				one := map[string]bool{}
				for range lost {
					one[<-results] = true
				}
				if len(one) != lost || w.runs.Load() != int64(lost) {
					t.Errorf("%d runs, and the results %v", w.runs.Load(), one)
				}
			})
		}
	}
}

// TestLateNews: the gateway may hear of the lost client after the next call has come.
func TestLateNews(t *testing.T) {
	st := &watched{Store: memstore.New(), looked: make(chan struct{})}
	w := &world{t: t, server: newServer(), Service: semelhttptest.NewOn(t, st)}
	w, _ = another(t, w, st, operation)
	release := make(chan struct{})
	w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
		<-release
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}`, id)
	}
	direct := w.url
	network, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(direct, "http://")) })
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	_, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, "")
	first := w.request(modern, raw, "Mcp-Name", "pay")
	first.URL = urlOf(t, "http://"+network.Addr())
	var both sync.WaitGroup
	both.Go(func() {
		if resp, err := newClient(t).Do(first); err == nil {
			resp.Body.Close()
			t.Error("the first call was answered")
		}
	})
	<-w.began
	both.Go(func() {
		if got := w.pay(newClient(t), `{}`); got.said() != "ok" || !got.echo() {
			t.Errorf("%s", got.text)
		}
	})
	<-st.looked
	<-st.looked // it waits for news
	network.Set(faultnet.Reset)
	close(release)
	both.Wait()
	if w.runs.Load() != 1 {
		t.Errorf("%d runs", w.runs.Load())
	}
}

// TestLostAnswer: an answer that didn't arrive whole is given again to whoever asks within the
// window, and the call runs once. After that, or for somebody else, it is another call.
func TestLostAnswer(t *testing.T) {
	for _, cut := range []faultnet.Cut{{Place: faultnet.BeforeAnswer}, {Place: faultnet.InAnswer}} {
		t.Run(string(cut.Place), func(t *testing.T) {
			w := seen(t, mcp.GatewayOptions{Echo: time.Hour})
			direct := w.url
			network, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(direct, "http://")) })
			if err != nil {
				t.Fatal(err)
			}
			defer network.Close()
			network.CutEach(func() faultnet.Cut { return cut })
			_, raw := modern.body("tools/call", `"name":"pay","arguments":{"a":1}`, "")
			w.url = "http://" + network.Addr()
			resp, err := newClient(t).Do(w.request(modern, raw, "Mcp-Name", "pay"))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Fatal("the answer arrived")
			}
			w.url = direct
			if got := w.pay(nil, `{"a":2}`); got.said() != "run 2" || got.echo() {
				t.Errorf("other arguments: %s", got.text)
			}
			if got := w.pay(nil, `{"a":1}`, semelhttptest.CallerHeader, "eve"); got.said() != "run 3" || got.echo() {
				t.Errorf("another caller: %s", got.text)
			}
			if got := w.pay(nil, ` {"a" : 1.0} `); got.said() != "run 1" || !got.echo() {
				t.Errorf("the same: %s", got.text)
			}
			if got := w.pay(nil, `{"a":1}`); got.said() != "run 4" || got.echo() { // that arrived by now
				t.Errorf("once more: %s", got.text)
			}
		})
	}
	t.Run("nobody sees what becomes of answers", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{})
		if first, second := w.pay(nil, `{}`), w.pay(nil, `{}`); first.echo() || !second.echo() || w.runs.Load() != 1 {
			t.Errorf("%s\n%s", first.text, second.text)
		}
		off := open(t, mcp.GatewayOptions{Echo: -1})
		if first, second := off.pay(nil, `{}`), off.pay(nil, `{}`); first.echo() || second.echo() || off.runs.Load() != 2 {
			t.Errorf("without a window: %s\n%s", first.text, second.text)
		}
	})
	t.Run("requests overtake answers over HTTP/2", func(t *testing.T) {
		w, certs := open(t, mcp.GatewayOptions{}), httptest.NewTLSServer(nil)
		defer certs.Close()
		s := httptest.NewUnstartedServer(w.gateway)
		s.Config.TLSConfig = &tls.Config{Certificates: certs.TLS.Certificates}
		s.Listener = semelproxy.Strict(s.Config, s.Listener)
		s.Start()
		defer s.Close()
		w.url = strings.Replace(s.URL, "http:", "https:", 1)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		for _, echo := range []bool{false, true} {
			if got := w.pay(client, `{}`); got.echo() != echo {
				t.Errorf("%s", got.text)
			}
		}
		old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		defer old.CloseIdleConnections()
		for range 2 {
			if got := w.pay(old, `{"a":1}`); got.echo() {
				t.Errorf("over HTTP/1: %s", got.text)
			}
		}
	})
	t.Run("the window is over", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{Echo: time.Millisecond})
		for w.pay(nil, `{}`); w.runs.Load() == 1; w.pay(nil, `{}`) {
		}
	})
	t.Run("the form of a later version", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{})
		w.pay(nil, `{}`)
		page, err := w.Engine.Search(t.Context(), store.Query{Operation: "semel.mcp.echo"})
		if err != nil || len(page.Records) != 1 || !regexp.MustCompile(`^\{"mcp":1,"calls":\[\{"key":"[A-Z2-7]{26}","by":"[A-Z2-7]{26}-1"\}\]\}$`).Match(page.Records[0].Result.Data) {
			t.Fatalf("%+v, %v", page.Records, err)
		}
		later := []byte(`{"mcp":2,"waiting":[{"call":"x"}]}`)
		err = store.NewCell(w.Store, page.Records[0].ID).Change(t.Context(), func(store.CellValue) (store.CellValue, error) {
			return store.CellValue{Data: later}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.pay(nil, `{}`); got.code != "unsupported" || w.runs.Load() != 1 {
			t.Errorf("%s", got.text)
		}
		if rec, err := w.Store.Get(t.Context(), page.Records[0].ID); err != nil || string(rec.Result.Data) != string(later) {
			t.Errorf("%s, %v", rec.Result.Data, err)
		}
	})
	t.Run("a refusal isn't the answer", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{})
		w.answer = func(rw http.ResponseWriter, _ *http.Request, _ string, _ object) {
			rw.WriteHeader(http.StatusBadGateway)
		}
		for range 3 {
			if got := w.pay(nil, `{}`); got.code != "held" || w.runs.Load() != 1 {
				t.Errorf("%d runs: %s", w.runs.Load(), got.text)
			}
		}
	})
	t.Run("a failed call runs again", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{})
		w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":true}}`, id)
		}
		for n := range 3 {
			if w.pay(nil, `{}`); w.runs.Load() != int64(n+1) {
				t.Errorf("%d runs", w.runs.Load())
			}
		}
	})
}

// another is another process with a gateway on the same store, before the same server.
func another(t *testing.T, w *world, st semel.Store, op semel.Operation) (*world, *semel.Engine) {
	e, err := semel.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(e, &semelhttp.Options{Identity: func(*http.Request) (string, string, error) { return "", "tester", nil }})
	if err != nil {
		t.Fatal(err)
	}
	upstream := listen(t, w.server)
	g, err := mcp.NewGateway(guard, mcp.GatewayOptions{Operation: op, Upstream: urlOf(t, upstream+"/mcp")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		if err := errors.Join(guard.Close(context.WithoutCancel(t.Context())), e.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	other := *w
	other.gateway, other.Engine, other.url = g, e, strictly(t, g)
	return &other, e
}

// TestAnotherProcess: gateways on one store agree about what was delivered, and about which of them
// lives.
func TestAnotherProcess(t *testing.T) {
	op := operation
	op.Lease = 30 * time.Millisecond
	t.Run("an answer that arrived there", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Operation: op})
		other, _ := another(t, w, w.Store, op)
		w.pay(nil, `{}`)
		w.client.CloseIdleConnections()
		for cells(t, w) > 0 { // until the store knows
		}
		if got := other.pay(newClient(t), `{}`); got.said() != "run 2" || got.echo() {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("an answer that arrived after its gateway was closed", func(t *testing.T) { // as by a reload
		w := seen(t, mcp.GatewayOptions{Operation: op})
		other, _ := another(t, w, w.Store, op)
		w.pay(nil, `{}`)
		w.gateway.Close()
		w.client.CloseIdleConnections()
		for cells(t, w) > 0 {
		}
		if got := other.pay(newClient(t), `{}`); got.said() != "run 2" || got.echo() {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("an answer that didn't", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{Operation: op}) // where nobody sees it
		other, _ := another(t, w, w.Store, op)
		w.pay(nil, `{}`)
		if got := other.pay(newClient(t), `{}`); got.said() != "run 1" || !got.echo() {
			t.Errorf("%s", got.text)
		}
		w.pay(nil, `{"a":1}`)
		w.Advance(mcp.DefaultEcho)
		if got := other.pay(newClient(t), `{"a":1}`); got.said() != "run 3" || got.echo() {
			t.Errorf("after the window: %s", got.text)
		}
	})
	t.Run("a call that runs there", func(t *testing.T) {
		w := seen(t, mcp.GatewayOptions{Operation: op})
		got := w.whileItRuns(t, op, func(*semel.Engine) {})
		if got.said() != "ok" || got.replayed() || w.runs.Load() != 2 {
			t.Errorf("%d runs: %s", w.runs.Load(), got.text)
		}
	})
	t.Run("a call that runs there, and it dies", func(t *testing.T) {
		// It waits: the lease says nothing yet.
		got, runs := whileItDies(t, 3, func(*world) {})
		if got.code != "held" || runs != 1 {
			t.Errorf("%d runs: %s", runs, got.text)
		}
	})
	t.Run("a call that runs there, and it dies, and somebody settles it", func(t *testing.T) {
		got, runs := whileItDies(t, 3, func(here *world) {
			_, err := here.Engine.Sweep(t.Context())
			page, searchErr := here.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
			if err != nil || searchErr != nil || len(page.Records) != 1 {
				t.Errorf("%v, %v", err, searchErr)
				return
			}
			done := semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte("settled")}}
			if _, err := here.Engine.Settle(t.Context(), page.Records[0].ID, done, "seen"); err != nil {
				t.Error(err)
			}
		})
		if got.said() != "settled" || !got.echo() || runs != 1 {
			t.Errorf("%d runs: %s", runs, got.text)
		}
	})
}

// whileItDies calls a tool while an equal call runs at another process, which dies. Once the call has
// looked so often, the lease is over and then is called; only after that it looks again.
func whileItDies(t *testing.T, looks int, then func(here *world)) (got *answer, runs int64) {
	st := &watched{Store: memstore.New(), looked: make(chan struct{}), goOn: make(chan struct{})}
	op := operation
	op.Lease = time.Hour
	w := &world{t: t, server: newServer(), Service: semelhttptest.NewOn(t, st)}
	w.Store = st.Store
	here, _ := another(t, w, st, op)
	got = here.whileItRuns(t, op, func(e *semel.Engine) {
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		go func() {
			for look := range looks {
				<-st.looked
				if look == looks-1 {
					st.Advance(2 * op.Lease)
					then(here)
				}
				st.goOn <- struct{}{}
			}
		}()
	})
	return got, w.runs.Load()
}

// TestAClientLeavesDuringTheWrite: a repetition whose client leaves while its entry is written is a
// lost stream, as one that leaves later.
func TestAClientLeavesDuringTheWrite(t *testing.T) {
	st := &leaving{Store: memstore.New()}
	w := &world{t: t, server: newServer(), Service: semelhttptest.NewOn(t, st)}
	w.Store = st.Store
	here, _ := another(t, w, st, operation)
	here.url = listen(t, here.gateway) // where nobody sees what becomes of answers
	here.pay(nil, `{}`)
	ctx, leave := context.WithCancel(t.Context())
	st.leave.Store(&leave)
	_, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, "")
	here.gateway.ServeHTTP(httptest.NewRecorder(), here.request(modern, raw, "Mcp-Name", "pay").WithContext(ctx))
	if got := here.pay(nil, `{}`); !got.echo() || here.runs.Load() != 1 {
		t.Errorf("%d runs: %s", here.runs.Load(), got.text)
	}
}

// leaving is a store whose caller leaves while the next list of calls without a known delivery is
// written. It writes, and doesn't say so to somebody who is gone.
type leaving struct {
	*memstore.Store
	leave atomic.Pointer[context.CancelFunc]
}

func (s *leaving) Apply(ctx context.Context, w store.Write) (*store.Record, bool, error) {
	if w.Record == nil || w.Record.ID.Operation != "semel.mcp.echo" {
		return s.Store.Apply(ctx, w)
	}
	if leave := s.leave.Swap(nil); leave != nil {
		(*leave)()
	}
	rec, applied, err := s.Store.Apply(context.WithoutCancel(ctx), w)
	return rec, applied, errors.Join(err, ctx.Err())
}

// whileItRuns calls a tool while an equal call runs at another process, and something happens to
// that.
func (w *world) whileItRuns(t *testing.T, op semel.Operation, happens func(*semel.Engine)) *answer {
	release := make(chan struct{})
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
		if run(r) == 1 {
			<-release
		}
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}`, id)
	}
	first, engine := another(t, w, w.Store, op)
	var call sync.WaitGroup
	call.Go(func() { first.pay(newClient(t), `{}`) })
	<-w.began
	happens(engine)
	got := w.pay(newClient(t), `{}`)
	close(release)
	call.Wait()
	return got
}

// watched is a store that tells when the calls without a known delivery are looked at. With goOn,
// whoever was told lets that look go on.
type watched struct {
	*memstore.Store
	looked, goOn chan struct{}
}

func (s *watched) Get(ctx context.Context, id store.ID) (*store.Record, error) {
	if id.Operation == "semel.mcp.echo" {
		select {
		case s.looked <- struct{}{}:
			if s.goOn != nil {
				<-s.goOn
			}
		default:
		}
	}
	return s.Store.Get(ctx, id)
}

// cells is how many calls aren't known to be delivered.
func cells(t *testing.T, w *world) int {
	page, err := w.Engine.Search(t.Context(), store.Query{Operation: "semel.mcp.echo"})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Records)
}
